-- Tasks, and what it takes to find the next one without looking at all of them.

ALTER TABLE sections ADD COLUMN created_at TEXT NOT NULL DEFAULT '';

ALTER TABLE tasks ADD COLUMN description TEXT;
ALTER TABLE tasks ADD COLUMN priority INTEGER NOT NULL DEFAULT 5; -- 0 low to 9 high
ALTER TABLE tasks ADD COLUMN created_at TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN updated_at TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN blockers INTEGER NOT NULL DEFAULT 0; -- dependencies that are not done: kept by the triggers below
ALTER TABLE tasks ADD COLUMN not_before TEXT;                     -- a failed one that is to be tried again then
ALTER TABLE tasks ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0; -- that failed since it was last put back by hand
ALTER TABLE tasks ADD COLUMN last_error TEXT;
ALTER TABLE tasks ADD COLUMN runner TEXT;                         -- who was granted it last
ALTER TABLE tasks ADD COLUMN token INTEGER NOT NULL DEFAULT 0;    -- with which token
ALTER TABLE tasks ADD COLUMN lost TEXT NOT NULL DEFAULT '[]';     -- JSON: runners from whom it was taken over

-- Whoever holds a task now was granted it last.
UPDATE tasks SET runner = (SELECT holder FROM leases WHERE key = 'task:' || tasks.id),
    token = coalesce((SELECT token FROM leases WHERE key = 'task:' || tasks.id), 0);
UPDATE sections SET created_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now');
UPDATE tasks SET created_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now');

CREATE TABLE task_dependencies (
    task_id TEXT NOT NULL REFERENCES tasks(id),
    depends_on TEXT NOT NULL REFERENCES tasks(id),
    PRIMARY KEY (task_id, depends_on)
) WITHOUT ROWID;
CREATE INDEX task_dependents ON task_dependencies (depends_on);

-- Rows that other programs add without these columns.
CREATE TRIGGER section_added AFTER INSERT ON sections WHEN new.created_at = ''
BEGIN
    -- Whoever holds a task now was granted it last.
UPDATE tasks SET runner = (SELECT holder FROM leases WHERE key = 'task:' || tasks.id),
    token = coalesce((SELECT token FROM leases WHERE key = 'task:' || tasks.id), 0);
UPDATE sections SET created_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now') WHERE id = new.id;
END;
CREATE TRIGGER task_added AFTER INSERT ON tasks WHEN new.created_at = ''
BEGIN
    UPDATE tasks SET created_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
        updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now') WHERE id = new.id;
END;

-- How many dependencies of a task are not done, whoever writes, and however: counted anew each time,
-- because what REPLACE removes is told to nobody.
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

-- By status for lists, by title and section to be found, and the ready ones in the order they go.
CREATE INDEX tasks_by_status ON tasks (status, priority DESC, created_at);
CREATE INDEX tasks_by_title ON tasks (title COLLATE NOCASE);
CREATE INDEX tasks_by_section ON tasks (section_id, status, priority DESC, created_at);
CREATE INDEX tasks_by_age ON tasks (created_at);
CREATE INDEX tasks_ready ON tasks (priority DESC, created_at)
    WHERE status IN ('pending', 'in_progress') AND blockers = 0 AND not_before IS NULL;
CREATE INDEX tasks_ready_in ON tasks (section_id, priority DESC, created_at)
    WHERE status IN ('pending', 'in_progress') AND blockers = 0 AND not_before IS NULL;
CREATE INDEX tasks_later ON tasks (not_before) WHERE not_before IS NOT NULL;

-- Rows that we took out of another program's lock tables, until that is certain: those are in
-- another file, and two files are not written in one step.
CREATE TABLE leaving (
    key TEXT PRIMARY KEY,
    runner TEXT NOT NULL,
    expires_at TEXT NOT NULL
) WITHOUT ROWID;
