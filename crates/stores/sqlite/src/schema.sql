-- The tables and indexes that locks need; `tasks.sql` and `triggers.sql` have what tasks need. `schema.rs` runs this file
-- for a new database, and again to rebuild a database of an earlier version before it copies the rows back.

-- The newest token that may have been granted, and the boot in which it was last raised.
CREATE TABLE tokens (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    newest INTEGER NOT NULL,
    boot TEXT NOT NULL
);
INSERT INTO tokens VALUES (1, 0, '');

-- One row for each holder of a key. Not WITHOUT ROWID: such a table keeps 231 bytes of a row in its own page, so every
-- grant would take another page from the free ones, and every release give it back.
CREATE TABLE leases (
    key TEXT NOT NULL,
    token INTEGER NOT NULL,
    holder TEXT NOT NULL,
    host TEXT NOT NULL,
    command TEXT,
    binding TEXT NOT NULL,        -- JSON: the process or session that the lease is tied to
    acquired_at TEXT NOT NULL,
    expires_at TEXT NOT NULL,
    heartbeat_at TEXT NOT NULL,
    ttl_ms INTEGER NOT NULL,
    boot TEXT NOT NULL,           -- the boot that expires_boot counts in
    expires_boot INTEGER NOT NULL, -- nanoseconds since that boot, the same instant as expires_at
    mode TEXT NOT NULL DEFAULT 'exclusive', -- exclusive, shared, or slots:4
    slot INTEGER,                 -- which of the slots
    PRIMARY KEY (key, token)
);

-- One row for each waiter.
CREATE TABLE tickets (
    ticket INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL,
    holder TEXT NOT NULL,
    host TEXT NOT NULL,
    command TEXT,
    binding TEXT NOT NULL,
    named INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    boot TEXT NOT NULL,
    arrived INTEGER NOT NULL,     -- nanoseconds since boot
    seen INTEGER NOT NULL,        -- nanoseconds since boot
    within TEXT NOT NULL,         -- the tokens that the waiter runs under, each between commas: ,5,7,
    parked INTEGER NOT NULL DEFAULT 0, -- 1: the waiter withdrew and may come back
    mode TEXT NOT NULL DEFAULT 'exclusive',
    -- The order of the queue: one level of priority is worth a minute of waiting.
    rank INTEGER NOT NULL AS (arrived - priority * 60000000000)
);
CREATE INDEX tickets_by_key ON tickets (key, rank, ticket);
CREATE INDEX tickets_by_holder ON tickets (holder);

-- Events. The row with the largest id is never pruned.
CREATE TABLE history (
    id INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    key TEXT NOT NULL,
    kind TEXT NOT NULL,
    token INTEGER NOT NULL,
    holder TEXT NOT NULL,
    times INTEGER NOT NULL DEFAULT 1,
    reason TEXT,
    evidence TEXT,                -- JSON
    mode TEXT NOT NULL DEFAULT 'exclusive',
    waited INTEGER                -- a grant: nanoseconds since its holder took a ticket
);
CREATE INDEX history_by_key ON history (key, id);

-- Rows that tenure removed from another program's lock tables, until the removal is certain: those
-- tables are in another file, and two files are not committed in one step.
CREATE TABLE leaving (
    key TEXT PRIMARY KEY,
    runner TEXT NOT NULL,
    expires_at TEXT NOT NULL
) WITHOUT ROWID;
