-- load_endings [finish] --
SELECT e.id, e.kind, e.run_id, e.job_id, e.parent_id, e.due_at, e.state, e.name,
  (SELECT h.task FROM history h WHERE h.id = e.run_id AND e.parent_id IS NOT NULL)
FROM endings e WHERE e.id > $1 ORDER BY e.id LIMIT $2;

-- load_busy [claim] --
SELECT x.parent_id, x.name FROM (
  SELECT value ->> 0 AS parent_id, value ->> 1 AS name FROM json_each($1)) AS x
WHERE EXISTS (
  SELECT 1 FROM live l WHERE l.parent_id = x.parent_id AND substr(l.task, 1, length(x.name) + 1) = x.name || '[');

-- begin_flow --
UPDATE live SET state = {blocked}, reason = CASE WHEN cancel THEN reason ELSE 'children' END, phase = 1, node = NULL,
  eligible_at = CASE WHEN cancel THEN NULL ELSE $3 END
WHERE id = $1 AND fence = $2 AND state = {running} RETURNING cancel;

-- add_flow --
INSERT INTO flows (run_id, job_id, version, document, adopted) VALUES ($1, $2, 0, $3, $4);

-- note_cancel --
INSERT INTO endings (kind, run_id, job_id, parent_id, name)
SELECT 'cancel', id, job_id, id, reason FROM live WHERE id IN (SELECT value FROM json_each($1));

-- step_flows --
UPDATE flows SET version = flows.version + 1
FROM (SELECT value ->> 0 AS id, value ->> 1 AS version FROM json_each($1)) AS x
WHERE flows.run_id = x.id AND flows.version = x.version
  AND EXISTS (SELECT 1 FROM live l WHERE l.id = x.id AND l.state = {blocked})
RETURNING run_id;

-- end_flows --
WITH x(id, state, reason, message, result, now) AS (VALUES {rows})
INSERT INTO history ({history_columns})
SELECT r.id, r.job_id, r.trigger_id, r.due_at, r.created_at, r.started_at, x.now, NULL, r.fence, NULL, x.state, r.attempt,
  r.priority, r.lost, r.kind, x.reason, r.node,
  CASE WHEN x.state = {cancelled} THEN COALESCE(r.cancel_note, x.message) ELSE x.message END, x.result, NULL, r.data, r.parent_id,
  r.task, r.followed
FROM x CROSS JOIN live r ON r.id = x.id;

-- gates_of --
SELECT CASE WHEN overlap >= 2 AND gate IS NOT NULL THEN job_id END, followed FROM live
WHERE id IN (SELECT value FROM json_each($1));

-- overdue_parents --
SELECT l.id FROM live l WHERE l.state = {blocked} AND l.reason = 'children' AND l.eligible_at <= $1
  AND EXISTS (SELECT 1 FROM flows f WHERE f.run_id = l.id) ORDER BY l.eligible_at LIMIT $2;

-- mark_parents --
UPDATE live SET cancel = 1, reason = $2, cancel_note = $3, eligible_at = NULL WHERE id IN (SELECT value FROM json_each($1));
