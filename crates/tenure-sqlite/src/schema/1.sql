-- At least every token that was ever given, and the boot in which it was last raised.
CREATE TABLE tokens (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    newest INTEGER NOT NULL,
    boot TEXT NOT NULL
);
INSERT INTO tokens VALUES (1, 0, '');

-- One row for each key that is held.
CREATE TABLE leases (
    key TEXT PRIMARY KEY,
    token INTEGER NOT NULL,
    holder TEXT NOT NULL,
    host TEXT NOT NULL,
    command TEXT,
    binding TEXT NOT NULL,        -- JSON: the process it is tied to
    acquired_at TEXT NOT NULL,
    expires_at TEXT NOT NULL,
    heartbeat_at TEXT NOT NULL,
    ttl_ms INTEGER NOT NULL,
    boot TEXT NOT NULL,           -- expires_boot counts in this boot
    expires_boot INTEGER NOT NULL -- nanoseconds since boot, the same instant as expires_at
) WITHOUT ROWID;

-- One row for each place in a queue.
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
    within TEXT NOT NULL,         -- tokens it runs under, each between commas: ,5,7,
    parked INTEGER NOT NULL DEFAULT 0 -- stepped aside, to come back
);
CREATE INDEX tickets_by_key ON tickets (key);
CREATE INDEX tickets_by_holder ON tickets (holder);

-- What happened. The largest id is never removed.
CREATE TABLE history (
    id INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    key TEXT NOT NULL,
    kind TEXT NOT NULL,
    token INTEGER NOT NULL,
    holder TEXT NOT NULL,
    times INTEGER NOT NULL DEFAULT 1,
    reason TEXT,
    evidence TEXT                 -- JSON
);
CREATE INDEX history_by_key ON history (key, id);

CREATE TABLE sections (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
);
CREATE TABLE tasks (
    id TEXT PRIMARY KEY,
    title TEXT NOT NULL,
    section_id TEXT REFERENCES sections(id),
    status TEXT NOT NULL DEFAULT 'pending'
);

-- These two are read and written by other programs too: not a letter differs from theirs.
CREATE TABLE task_locks (
    task_id TEXT PRIMARY KEY REFERENCES tasks(id),
    runner_id TEXT NOT NULL,
    acquired_at TEXT NOT NULL DEFAULT (datetime('now')),
    expires_at TEXT NOT NULL,
    heartbeat_at TEXT NOT NULL DEFAULT (datetime('now'))
);
CREATE TABLE section_locks (
    section_id TEXT PRIMARY KEY REFERENCES sections(id),
    runner_id TEXT NOT NULL,
    acquired_at TEXT NOT NULL DEFAULT (datetime('now')),
    expires_at TEXT NOT NULL
);
