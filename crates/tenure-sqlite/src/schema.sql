-- All tables and indexes; `triggers.sql` has the triggers. `schema.rs` runs this file for a new database, and again to
-- rebuild a database of an earlier version before it copies the rows back.

-- The newest token that may have been granted, and the boot in which it was last raised.
CREATE TABLE tokens (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    newest INTEGER NOT NULL,
    boot TEXT NOT NULL
);
INSERT INTO tokens VALUES (1, 0, '');

-- One row for each key that is held. Not WITHOUT ROWID: such a table keeps 231 bytes of a row in its own page, so every
-- grant would take another page from the free ones, and every release give it back.
CREATE TABLE leases (
    key TEXT PRIMARY KEY NOT NULL,
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
    expires_boot INTEGER NOT NULL -- nanoseconds since that boot, the same instant as expires_at
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
    evidence TEXT                 -- JSON
);
CREATE INDEX history_by_key ON history (key, id);

CREATE TABLE sections (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    created_at TEXT NOT NULL DEFAULT ''
);

-- A time of '' in a column *_at means: not changed since the task was added.
CREATE TABLE tasks (
    id TEXT PRIMARY KEY,
    title TEXT NOT NULL,
    section_id TEXT REFERENCES sections(id),
    status TEXT NOT NULL DEFAULT 'pending',
    description TEXT,
    priority INTEGER NOT NULL DEFAULT 5,     -- 0 low to 9 high
    created_at TEXT NOT NULL DEFAULT '',
    updated_at TEXT NOT NULL DEFAULT '',
    blockers INTEGER NOT NULL DEFAULT 0,     -- unfinished dependencies, counted by the triggers below
    not_before TEXT,                         -- when a failed task is to be tried again
    attempts INTEGER NOT NULL DEFAULT 0,     -- failures since the status was last set to pending by hand
    last_error TEXT,
    runner TEXT,                             -- the runner that was granted the task last
    token INTEGER NOT NULL DEFAULT 0,        -- the token of that grant
    lost TEXT NOT NULL DEFAULT '[]',         -- JSON: the runners that the task was taken over from
    title_at TEXT NOT NULL DEFAULT '',
    description_at TEXT NOT NULL DEFAULT '',
    section_at TEXT NOT NULL DEFAULT '',
    priority_at TEXT NOT NULL DEFAULT '',
    status_at TEXT NOT NULL DEFAULT '',      -- of status, attempts and last_error
    elsewhere INTEGER NOT NULL DEFAULT 0     -- 1: a runner works on it in another clone
);
-- For lists, for names, and the ready tasks in the order in which they are given out.
CREATE INDEX tasks_by_status ON tasks (status, priority DESC, created_at);
CREATE INDEX tasks_by_title ON tasks (title COLLATE NOCASE);
CREATE INDEX tasks_by_section ON tasks (section_id, status, priority DESC, created_at);
CREATE INDEX tasks_by_age ON tasks (created_at);
CREATE INDEX tasks_ready ON tasks (priority DESC, created_at)
    WHERE status IN ('pending', 'in_progress') AND blockers = 0 AND not_before IS NULL AND elsewhere = 0;
CREATE INDEX tasks_ready_in ON tasks (section_id, priority DESC, created_at)
    WHERE status IN ('pending', 'in_progress') AND blockers = 0 AND not_before IS NULL AND elsewhere = 0;
CREATE INDEX tasks_later ON tasks (not_before) WHERE not_before IS NOT NULL;

CREATE TABLE task_dependencies (
    task_id TEXT NOT NULL REFERENCES tasks(id),
    depends_on TEXT NOT NULL REFERENCES tasks(id),
    PRIMARY KEY (task_id, depends_on)
) WITHOUT ROWID;
CREATE INDEX task_dependents ON task_dependencies (depends_on);

-- Other programs read and write these two tables: they differ in no letter from the documented ones.
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

-- Rows that tenure removed from another program's lock tables, until the removal is certain: those
-- tables are in another file, and two files are not committed in one step.
CREATE TABLE leaving (
    key TEXT PRIMARY KEY,
    runner TEXT NOT NULL,
    expires_at TEXT NOT NULL
) WITHOUT ROWID;

-- What clones need to agree on tasks: when each field was last changed, what was deleted, and every
-- earlier value.

-- When a dependency was added or dropped. No row: when the task was added.
CREATE TABLE dependency_times (
    task_id TEXT NOT NULL,
    depends_on TEXT NOT NULL,
    at TEXT NOT NULL,
    present INTEGER NOT NULL,
    PRIMARY KEY (task_id, depends_on)
) WITHOUT ROWID;
CREATE INDEX dependency_times_on ON dependency_times (depends_on);

CREATE TABLE deleted_tasks (
    id TEXT PRIMARY KEY,
    at TEXT NOT NULL,
    title TEXT NOT NULL
) WITHOUT ROWID;

-- Every earlier value of a field, and every value of another clone that came too late.
CREATE TABLE task_history (
    task_id TEXT NOT NULL,
    field TEXT NOT NULL,
    at TEXT NOT NULL,     -- when it was set
    value TEXT NOT NULL,  -- '' for none
    until TEXT NOT NULL,  -- when the value that replaced it was set
    cause TEXT NOT NULL,  -- changed: here; merged: by a change in another clone; overruled: never was the value here
    PRIMARY KEY (task_id, field, at, value)
) WITHOUT ROWID;

CREATE TABLE exchange (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    changes INTEGER NOT NULL,         -- grows with every change of what clones share
    merging INTEGER NOT NULL,         -- 1 inside a merge, which sets times and history itself
    settled TEXT NOT NULL             -- a note of the last sync to the next one
);
INSERT INTO exchange VALUES (1, 0, 0, '');

-- The tasks that changed here since the last sync, with exchange.changes of that change. '' stands for
-- the sections. A task whose change of another clone could not be applied yet is here, too.
CREATE TABLE unshared (
    id TEXT PRIMARY KEY,
    change INTEGER NOT NULL
) WITHOUT ROWID;

-- The row that an INSERT of another program meets under its id. REPLACE removes that row without
-- firing a DELETE trigger, so the INSERT triggers compare what is new with what is here.
CREATE TABLE replaced_tasks (
    id TEXT PRIMARY KEY,
    title TEXT,
    section_id TEXT,
    status TEXT,
    description TEXT,
    priority INTEGER,
    created_at TEXT,
    not_before TEXT,
    attempts INTEGER,
    last_error TEXT,
    runner TEXT,
    token INTEGER,
    lost TEXT,
    title_at TEXT,
    description_at TEXT,
    section_at TEXT,
    priority_at TEXT,
    status_at TEXT,
    elsewhere INTEGER
) WITHOUT ROWID;
CREATE TABLE replaced_sections (
    id TEXT PRIMARY KEY,
    name TEXT,
    created_at TEXT
) WITHOUT ROWID;
