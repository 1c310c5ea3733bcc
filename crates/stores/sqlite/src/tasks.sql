-- The tables and indexes of tasks, which a database has from its first task or section on: SQLite parses every table
-- each time that a process opens the database, and a project that only locks needs none of these.

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
    blockers INTEGER NOT NULL DEFAULT 0,     -- unfinished dependencies, counted by triggers
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

-- When a section was last deleted or added again. No row: when it was first added.
CREATE TABLE section_times (
    name TEXT PRIMARY KEY COLLATE NOCASE,
    created_at TEXT NOT NULL,     -- when it was first added
    at TEXT NOT NULL,
    deleted INTEGER NOT NULL
) WITHOUT ROWID;

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
