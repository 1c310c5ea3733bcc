-- The triggers of the tables in `tasks.sql`. `schema.rs` runs both files together.
--
-- Other programs run these triggers with their own, older SQLite: no `UPDATE ... FROM`, no `RETURNING`,
-- no `RAISE` with an expression.

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

-- Clones know sections by their names: a renamed section is another one, also for each of its tasks.
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
    UPDATE section_times SET name = new.name, created_at = (SELECT created_at FROM sections WHERE id = new.id), deleted = 0,
        at = max(strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', at, '+0.001 seconds'), ''))
        WHERE name = new.name;
    UPDATE exchange SET changes = changes + 1;
    DELETE FROM unshared WHERE id = '';
    INSERT INTO unshared SELECT '', changes FROM exchange;
END;
CREATE TRIGGER section_renamed AFTER UPDATE OF name ON sections
WHEN old.name IS NOT new.name AND NOT (SELECT merging FROM exchange)
BEGIN
    UPDATE tasks SET section_at = max(strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), coalesce(strftime('%Y-%m-%dT%H:%M:%fZ',
        iif(section_at = '', created_at, section_at), '+0.001 seconds'), '')) WHERE section_id = new.id;
    UPDATE section_times SET deleted = 1,
        at = max(strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', at, '+0.001 seconds'), ''))
        WHERE name = old.name AND NOT EXISTS (SELECT 1 FROM sections WHERE name = old.name COLLATE NOCASE);
    INSERT INTO section_times SELECT old.name, old.created_at, max(strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
        coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', old.created_at, '+0.001 seconds'), '')), 1
        WHERE NOT EXISTS (SELECT 1 FROM section_times WHERE name = old.name)
        AND NOT EXISTS (SELECT 1 FROM sections WHERE name = old.name COLLATE NOCASE);
    UPDATE section_times SET name = new.name, created_at = (SELECT created_at FROM sections WHERE id = new.id), deleted = 0,
        at = max(strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', at, '+0.001 seconds'), ''))
        WHERE name = new.name;
    UPDATE exchange SET changes = changes + 1;
    DELETE FROM unshared WHERE id = '';
    INSERT INTO unshared SELECT '', changes FROM exchange;
END;

CREATE TRIGGER section_deleted AFTER DELETE ON sections WHEN NOT (SELECT merging FROM exchange)
BEGIN
    UPDATE section_times SET deleted = 1,
        at = max(strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', at, '+0.001 seconds'), ''))
        WHERE name = old.name AND NOT EXISTS (SELECT 1 FROM sections WHERE name = old.name COLLATE NOCASE);
    INSERT INTO section_times SELECT old.name, old.created_at, max(strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
        coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', old.created_at, '+0.001 seconds'), '')), 1
        WHERE NOT EXISTS (SELECT 1 FROM section_times WHERE name = old.name)
        AND NOT EXISTS (SELECT 1 FROM sections WHERE name = old.name COLLATE NOCASE);
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
