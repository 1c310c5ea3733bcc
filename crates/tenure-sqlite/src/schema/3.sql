-- What several clones need to agree on tasks: when each field was last changed, what was deleted,
-- and what it was before.

-- When a field was last changed; '' if that was when the task was added.
ALTER TABLE tasks ADD COLUMN title_at TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN description_at TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN section_at TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN priority_at TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN status_at TEXT NOT NULL DEFAULT '';   -- with attempts and last_error
ALTER TABLE tasks ADD COLUMN elsewhere INTEGER NOT NULL DEFAULT 0; -- 1: somebody works on it in another clone

-- When a dependency was added or dropped; none if that was when the task was added.
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

-- Every value that a field had, and those that came too late from another clone.
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
    changes INTEGER NOT NULL,         -- grows with every change of what is shared
    merging INTEGER NOT NULL,         -- 1 inside a merge, which sets times and history by itself
    settled TEXT NOT NULL             -- what the last sync left, in its own words
);
INSERT INTO exchange VALUES (1, 0, 0, '');

-- A change is later than what it changes, even if that came from a clock that is ahead.
CREATE TRIGGER task_retitled AFTER UPDATE OF title ON tasks
WHEN old.title IS NOT new.title AND NOT (SELECT merging FROM exchange)
BEGIN
    UPDATE tasks SET title_at = max(strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), coalesce(strftime('%Y-%m-%dT%H:%M:%fZ',
        iif(old.title_at = '', old.created_at, old.title_at), '+0.001 seconds'), '')) WHERE id = new.id;
    INSERT OR IGNORE INTO task_history SELECT id, 'title', iif(old.title_at = '', old.created_at, old.title_at),
        old.title, title_at, 'changed' FROM tasks WHERE id = new.id;
    UPDATE exchange SET changes = changes + 1;
END;
CREATE TRIGGER task_redescribed AFTER UPDATE OF description ON tasks
WHEN old.description IS NOT new.description AND NOT (SELECT merging FROM exchange)
BEGIN
    UPDATE tasks SET description_at = max(strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), coalesce(strftime('%Y-%m-%dT%H:%M:%fZ',
        iif(old.description_at = '', old.created_at, old.description_at), '+0.001 seconds'), '')) WHERE id = new.id;
    INSERT OR IGNORE INTO task_history SELECT id, 'description', iif(old.description_at = '', old.created_at, old.description_at),
        coalesce(old.description, ''), description_at, 'changed' FROM tasks WHERE id = new.id;
    UPDATE exchange SET changes = changes + 1;
END;
CREATE TRIGGER task_moved AFTER UPDATE OF section_id ON tasks
WHEN old.section_id IS NOT new.section_id AND NOT (SELECT merging FROM exchange)
BEGIN
    UPDATE tasks SET section_at = max(strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), coalesce(strftime('%Y-%m-%dT%H:%M:%fZ',
        iif(old.section_at = '', old.created_at, old.section_at), '+0.001 seconds'), '')) WHERE id = new.id;
    INSERT OR IGNORE INTO task_history SELECT id, 'section', iif(old.section_at = '', old.created_at, old.section_at),
        coalesce((SELECT name FROM sections WHERE id = old.section_id), ''), section_at, 'changed' FROM tasks WHERE id = new.id;
    UPDATE exchange SET changes = changes + 1;
END;
CREATE TRIGGER task_reranked AFTER UPDATE OF priority ON tasks
WHEN old.priority IS NOT new.priority AND NOT (SELECT merging FROM exchange)
BEGIN
    UPDATE tasks SET priority_at = max(strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), coalesce(strftime('%Y-%m-%dT%H:%M:%fZ',
        iif(old.priority_at = '', old.created_at, old.priority_at), '+0.001 seconds'), '')) WHERE id = new.id;
    INSERT OR IGNORE INTO task_history SELECT id, 'priority', iif(old.priority_at = '', old.created_at, old.priority_at),
        old.priority, priority_at, 'changed' FROM tasks WHERE id = new.id;
    UPDATE exchange SET changes = changes + 1;
END;
CREATE TRIGGER task_progressed AFTER UPDATE OF status, attempts, last_error ON tasks
WHEN (old.status IS NOT new.status OR old.attempts IS NOT new.attempts OR old.last_error IS NOT new.last_error)
    AND NOT (SELECT merging FROM exchange)
BEGIN
    UPDATE tasks SET status_at = max(strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), coalesce(strftime('%Y-%m-%dT%H:%M:%fZ',
        iif(old.status_at = '', old.created_at, old.status_at), '+0.001 seconds'), '')) WHERE id = new.id;
    INSERT OR IGNORE INTO task_history SELECT id, 'status', iif(old.status_at = '', old.created_at, old.status_at),
        old.status, status_at, 'changed' FROM tasks WHERE id = new.id AND old.status IS NOT new.status;
    UPDATE exchange SET changes = changes + 1;
END;
-- Begun here, whatever they do elsewhere.
CREATE TRIGGER task_begun_here AFTER UPDATE OF status ON tasks WHEN new.elsewhere <> 0 AND NOT (SELECT merging FROM exchange)
BEGIN
    UPDATE tasks SET elsewhere = 0 WHERE id = new.id;
END;

CREATE TRIGGER task_shared AFTER INSERT ON tasks WHEN NOT (SELECT merging FROM exchange)
BEGIN
    UPDATE exchange SET changes = changes + 1;
END;
CREATE TRIGGER task_deleted AFTER DELETE ON tasks WHEN NOT (SELECT merging FROM exchange)
BEGIN
    INSERT OR REPLACE INTO deleted_tasks VALUES (old.id, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), old.title);
    DELETE FROM dependency_times WHERE task_id = old.id OR depends_on = old.id;
    UPDATE exchange SET changes = changes + 1;
END;
CREATE TRIGGER section_shared AFTER INSERT ON sections WHEN NOT (SELECT merging FROM exchange)
BEGIN
    UPDATE exchange SET changes = changes + 1;
END;
-- Sections are known by their names: one that is renamed is another section for each of its tasks.
CREATE TRIGGER section_renamed AFTER UPDATE OF name ON sections
WHEN old.name IS NOT new.name AND NOT (SELECT merging FROM exchange)
BEGIN
    UPDATE tasks SET section_at = max(strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), coalesce(strftime('%Y-%m-%dT%H:%M:%fZ',
        iif(section_at = '', created_at, section_at), '+0.001 seconds'), '')) WHERE section_id = new.id;
    UPDATE exchange SET changes = changes + 1;
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
END;

-- This one wrote to tasks, which is none of its business.
DROP TRIGGER section_added;
CREATE TRIGGER section_added AFTER INSERT ON sections WHEN new.created_at = ''
BEGIN
    UPDATE sections SET created_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now') WHERE id = new.id;
END;

-- What somebody works on in another clone is not for the taking.
DROP INDEX tasks_ready;
DROP INDEX tasks_ready_in;
CREATE INDEX tasks_ready ON tasks (priority DESC, created_at)
    WHERE status IN ('pending', 'in_progress') AND blockers = 0 AND not_before IS NULL AND elsewhere = 0;
CREATE INDEX tasks_ready_in ON tasks (section_id, priority DESC, created_at)
    WHERE status IN ('pending', 'in_progress') AND blockers = 0 AND not_before IS NULL AND elsewhere = 0;
