-- The whole schema. `schema.rs` runs this file for a new database, and again to rebuild a database
-- of an earlier version before it copies the rows back.
--
-- Other programs run these triggers with their own, older SQLite: no `UPDATE ... FROM`, no `RETURNING`,
-- no `RAISE` with an expression.

-- The newest token that may have been granted, and the boot in which it was last raised.
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
    binding TEXT NOT NULL,        -- JSON: the process or session that the lease is tied to
    acquired_at TEXT NOT NULL,
    expires_at TEXT NOT NULL,
    heartbeat_at TEXT NOT NULL,
    ttl_ms INTEGER NOT NULL,
    boot TEXT NOT NULL,           -- the boot that expires_boot counts in
    expires_boot INTEGER NOT NULL -- nanoseconds since that boot, the same instant as expires_at
) WITHOUT ROWID;

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

-- The number of unfinished dependencies of a task. It is counted anew each time, because REPLACE
-- removes rows without firing a trigger.
CREATE TRIGGER dependency_added AFTER INSERT ON task_dependencies
BEGIN
    UPDATE tasks SET blockers = (SELECT count(*) FROM task_dependencies d JOIN tasks t ON t.id = d.depends_on
        WHERE d.task_id = tasks.id AND t.status NOT IN ('completed', 'skipped')) WHERE id = new.task_id;
END;
CREATE TRIGGER dependency_changed AFTER UPDATE ON task_dependencies
BEGIN
    UPDATE tasks SET blockers = (SELECT count(*) FROM task_dependencies d JOIN tasks t ON t.id = d.depends_on
        WHERE d.task_id = tasks.id AND t.status NOT IN ('completed', 'skipped')) WHERE id IN (new.task_id, old.task_id);
END;
CREATE TRIGGER dependency_removed AFTER DELETE ON task_dependencies
BEGIN
    UPDATE tasks SET blockers = (SELECT count(*) FROM task_dependencies d JOIN tasks t ON t.id = d.depends_on
        WHERE d.task_id = tasks.id AND t.status NOT IN ('completed', 'skipped')) WHERE id = old.task_id;
END;
CREATE TRIGGER task_done AFTER UPDATE OF status ON tasks
WHEN (old.status IN ('completed', 'skipped')) <> (new.status IN ('completed', 'skipped'))
BEGIN
    UPDATE tasks SET blockers = (SELECT count(*) FROM task_dependencies d JOIN tasks t ON t.id = d.depends_on
        WHERE d.task_id = tasks.id AND t.status NOT IN ('completed', 'skipped'))
    WHERE id IN (SELECT task_id FROM task_dependencies WHERE depends_on = new.id);
END;
CREATE TRIGGER task_replaced AFTER INSERT ON tasks
WHEN EXISTS (SELECT 1 FROM task_dependencies WHERE depends_on = new.id OR task_id = new.id)
BEGIN
    UPDATE tasks SET blockers = (SELECT count(*) FROM task_dependencies d JOIN tasks t ON t.id = d.depends_on
        WHERE d.task_id = tasks.id AND t.status NOT IN ('completed', 'skipped'))
    WHERE id = new.id OR id IN (SELECT task_id FROM task_dependencies WHERE depends_on = new.id);
END;
CREATE TRIGGER task_removed BEFORE DELETE ON tasks
BEGIN
    DELETE FROM task_dependencies WHERE task_id = old.id OR depends_on = old.id;
END;

-- A changed field gets the time of the change, which is later than the time of the value that it
-- replaces even if that value came from a clone whose clock is ahead.
CREATE TRIGGER task_retitled AFTER UPDATE OF title ON tasks
WHEN old.title IS NOT new.title AND NOT (SELECT merging FROM exchange)
BEGIN
    UPDATE tasks SET title_at = max(strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), coalesce(strftime('%Y-%m-%dT%H:%M:%fZ',
        iif(old.title_at = '', old.created_at, old.title_at), '+0.001 seconds'), '')) WHERE id = new.id;
    INSERT OR IGNORE INTO task_history SELECT id, 'title', iif(old.title_at = '', old.created_at, old.title_at),
        old.title, title_at, 'changed' FROM tasks WHERE id = new.id;
END;
CREATE TRIGGER task_redescribed AFTER UPDATE OF description ON tasks
WHEN old.description IS NOT new.description AND NOT (SELECT merging FROM exchange)
BEGIN
    UPDATE tasks SET description_at = max(strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), coalesce(strftime('%Y-%m-%dT%H:%M:%fZ',
        iif(old.description_at = '', old.created_at, old.description_at), '+0.001 seconds'), '')) WHERE id = new.id;
    INSERT OR IGNORE INTO task_history SELECT id, 'description', iif(old.description_at = '', old.created_at, old.description_at),
        coalesce(old.description, ''), description_at, 'changed' FROM tasks WHERE id = new.id;
END;
CREATE TRIGGER task_moved AFTER UPDATE OF section_id ON tasks
WHEN old.section_id IS NOT new.section_id AND NOT (SELECT merging FROM exchange)
BEGIN
    UPDATE tasks SET section_at = max(strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), coalesce(strftime('%Y-%m-%dT%H:%M:%fZ',
        iif(old.section_at = '', old.created_at, old.section_at), '+0.001 seconds'), '')) WHERE id = new.id;
    INSERT OR IGNORE INTO task_history SELECT id, 'section', iif(old.section_at = '', old.created_at, old.section_at),
        coalesce((SELECT name FROM sections WHERE id = old.section_id), ''), section_at, 'changed' FROM tasks WHERE id = new.id;
END;
CREATE TRIGGER task_reranked AFTER UPDATE OF priority ON tasks
WHEN old.priority IS NOT new.priority AND NOT (SELECT merging FROM exchange)
BEGIN
    UPDATE tasks SET priority_at = max(strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), coalesce(strftime('%Y-%m-%dT%H:%M:%fZ',
        iif(old.priority_at = '', old.created_at, old.priority_at), '+0.001 seconds'), '')) WHERE id = new.id;
    INSERT OR IGNORE INTO task_history SELECT id, 'priority', iif(old.priority_at = '', old.created_at, old.priority_at),
        old.priority, priority_at, 'changed' FROM tasks WHERE id = new.id;
END;
CREATE TRIGGER task_progressed AFTER UPDATE OF status, attempts, last_error ON tasks
WHEN (old.status IS NOT new.status OR old.attempts IS NOT new.attempts OR old.last_error IS NOT new.last_error)
    AND NOT (SELECT merging FROM exchange)
BEGIN
    UPDATE tasks SET status_at = max(strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), coalesce(strftime('%Y-%m-%dT%H:%M:%fZ',
        iif(old.status_at = '', old.created_at, old.status_at), '+0.001 seconds'), '')) WHERE id = new.id;
    INSERT OR IGNORE INTO task_history SELECT id, 'status', iif(old.status_at = '', old.created_at, old.status_at),
        old.status, status_at, 'changed' FROM tasks WHERE id = new.id AND old.status IS NOT new.status;
END;
-- Every change of a shared field sets its time.
CREATE TRIGGER task_unshared AFTER UPDATE OF id, created_at, title_at, description_at, section_at, priority_at, status_at
ON tasks WHEN NOT (SELECT merging FROM exchange)
BEGIN
    UPDATE exchange SET changes = changes + 1;
    DELETE FROM unshared WHERE id = new.id;
    INSERT INTO unshared SELECT new.id, changes FROM exchange;
END;
-- A status that is changed here is this clone's business, whatever the other clone does.
CREATE TRIGGER task_begun_here AFTER UPDATE OF status ON tasks WHEN new.elsewhere <> 0 AND NOT (SELECT merging FROM exchange)
BEGIN
    UPDATE tasks SET elsewhere = 0 WHERE id = new.id;
END;

-- A BEFORE trigger can't tell REPLACE from IGNORE or an upsert, which keep the row and fire no
-- AFTER INSERT. What it saved for them is overwritten by the next INSERT of that id.
CREATE TRIGGER task_saved BEFORE INSERT ON tasks
BEGIN
    DELETE FROM replaced_tasks WHERE id = new.id;
    INSERT INTO replaced_tasks SELECT id, title, section_id, status, description, priority, created_at, not_before, attempts,
        last_error, runner, token, lost, title_at, description_at, section_at, priority_at, status_at, elsewhere
        FROM tasks WHERE id = new.id;
END;
-- Fills in the columns that another program left out. A row that replaces another one becomes that
-- one again, and then a change of it: so the triggers above see what differs, and what tenure knows
-- of grants stays.
CREATE TRIGGER task_added AFTER INSERT ON tasks WHEN NOT (SELECT merging FROM exchange)
BEGIN
    UPDATE tasks SET
        created_at = iif(new.created_at <> '', new.created_at,
            coalesce((SELECT created_at FROM replaced_tasks WHERE id = new.id), strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))),
        updated_at = iif(new.updated_at <> '', new.updated_at, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
        WHERE id = new.id AND (new.created_at = '' OR new.updated_at = '');
    UPDATE exchange SET merging = 1 WHERE EXISTS (SELECT 1 FROM replaced_tasks WHERE id = new.id);
    UPDATE tasks SET (title, section_id, status, description, priority, not_before, attempts, last_error, runner, token, lost,
        title_at, description_at, section_at, priority_at, status_at, elsewhere) =
        (SELECT title, section_id, status, description, priority, not_before, attempts, last_error, runner, token, lost,
            iif(title_at = '', created_at, title_at), iif(description_at = '', created_at, description_at),
            iif(section_at = '', created_at, section_at), iif(priority_at = '', created_at, priority_at),
            iif(status_at = '', created_at, status_at), elsewhere FROM replaced_tasks WHERE id = new.id)
        WHERE id = new.id AND (SELECT merging FROM exchange);
    UPDATE exchange SET merging = 0 WHERE merging;
    UPDATE tasks SET title = new.title, section_id = new.section_id, status = new.status, description = new.description,
        priority = new.priority, attempts = new.attempts, last_error = new.last_error
        WHERE id = new.id AND EXISTS (SELECT 1 FROM replaced_tasks WHERE id = new.id);
    -- With recursive_triggers on, REPLACE fired the DELETE triggers as well. It deleted nothing.
    DELETE FROM deleted_tasks WHERE id = new.id AND EXISTS (SELECT 1 FROM replaced_tasks WHERE id = new.id);
    DELETE FROM replaced_tasks WHERE id = new.id;
    UPDATE exchange SET changes = changes + 1;
    DELETE FROM unshared WHERE id = new.id;
    INSERT INTO unshared SELECT new.id, changes FROM exchange;
END;
CREATE TRIGGER task_deleted AFTER DELETE ON tasks WHEN NOT (SELECT merging FROM exchange)
BEGIN
    INSERT OR REPLACE INTO deleted_tasks VALUES (old.id, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), old.title);
    DELETE FROM dependency_times WHERE task_id = old.id OR depends_on = old.id;
    UPDATE exchange SET changes = changes + 1;
    DELETE FROM unshared WHERE id = old.id;
    INSERT INTO unshared SELECT old.id, changes FROM exchange;
END;

-- Clones know sections by their names: for each of its tasks, a renamed section is another section.
CREATE TRIGGER section_saved BEFORE INSERT ON sections
BEGIN
    DELETE FROM replaced_sections WHERE id = new.id;
    INSERT INTO replaced_sections SELECT id, name, created_at FROM sections WHERE id = new.id;
END;
CREATE TRIGGER section_added AFTER INSERT ON sections WHEN NOT (SELECT merging FROM exchange)
BEGIN
    UPDATE sections SET created_at = coalesce((SELECT created_at FROM replaced_sections WHERE id = new.id),
        strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
        WHERE id = new.id AND new.created_at = '';
    UPDATE tasks SET section_at = max(strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), coalesce(strftime('%Y-%m-%dT%H:%M:%fZ',
        iif(section_at = '', created_at, section_at), '+0.001 seconds'), ''))
        WHERE section_id = new.id AND EXISTS (SELECT 1 FROM replaced_sections WHERE id = new.id AND name IS NOT new.name);
    DELETE FROM replaced_sections WHERE id = new.id;
    UPDATE exchange SET changes = changes + 1;
    DELETE FROM unshared WHERE id = '';
    INSERT INTO unshared SELECT '', changes FROM exchange;
END;
CREATE TRIGGER section_renamed AFTER UPDATE OF name ON sections
WHEN old.name IS NOT new.name AND NOT (SELECT merging FROM exchange)
BEGIN
    UPDATE tasks SET section_at = max(strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), coalesce(strftime('%Y-%m-%dT%H:%M:%fZ',
        iif(section_at = '', created_at, section_at), '+0.001 seconds'), '')) WHERE section_id = new.id;
    UPDATE exchange SET changes = changes + 1;
    DELETE FROM unshared WHERE id = '';
    INSERT INTO unshared SELECT '', changes FROM exchange;
END;

CREATE TRIGGER dependency_shared AFTER INSERT ON task_dependencies WHEN NOT (SELECT merging FROM exchange)
BEGIN
    UPDATE dependency_times SET present = 1,
        at = max(strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', at, '+0.001 seconds'), ''))
        WHERE task_id = new.task_id AND depends_on = new.depends_on;
    INSERT INTO dependency_times SELECT new.task_id, new.depends_on, max(strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), coalesce((SELECT
        strftime('%Y-%m-%dT%H:%M:%fZ', created_at, '+0.001 seconds') FROM tasks WHERE id = new.task_id), '')), 1
        WHERE NOT EXISTS (SELECT 1 FROM dependency_times WHERE task_id = new.task_id AND depends_on = new.depends_on);
    UPDATE exchange SET changes = changes + 1;
    DELETE FROM unshared WHERE id = new.task_id;
    INSERT INTO unshared SELECT new.task_id, changes FROM exchange;
END;
CREATE TRIGGER dependency_dropped AFTER DELETE ON task_dependencies WHEN NOT (SELECT merging FROM exchange)
BEGIN
    UPDATE dependency_times SET present = 0,
        at = max(strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', at, '+0.001 seconds'), ''))
        WHERE task_id = old.task_id AND depends_on = old.depends_on;
    INSERT INTO dependency_times SELECT old.task_id, old.depends_on, max(strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), coalesce((SELECT
        strftime('%Y-%m-%dT%H:%M:%fZ', created_at, '+0.001 seconds') FROM tasks WHERE id = old.task_id), '')), 0
        WHERE NOT EXISTS (SELECT 1 FROM dependency_times WHERE task_id = old.task_id AND depends_on = old.depends_on);
    UPDATE exchange SET changes = changes + 1;
    DELETE FROM unshared WHERE id = old.task_id;
    INSERT INTO unshared SELECT old.task_id, changes FROM exchange;
END;
