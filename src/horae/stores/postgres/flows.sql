-- load_endings [finish] --
-- Those that somebody drops at this moment are not waited for.
SELECT e.id, e.kind, e.run_id, e.job_id, e.parent_id, e.due_at, e.state, e.name,
  (SELECT h.task FROM history h WHERE h.id = e.run_id AND e.parent_id IS NOT NULL)
FROM endings e WHERE e.id > $1 ORDER BY e.id LIMIT $2 FOR UPDATE OF e SKIP LOCKED;

-- load_busy [claim] --
SELECT x.parent_id, x.name FROM (
  SELECT (value ->> 0)::bigint AS parent_id, value ->> 1 AS name FROM json_array_elements($1::json) AS value) AS x
WHERE EXISTS (SELECT 1 FROM live l WHERE l.parent_id = x.parent_id AND left(l.task, length(x.name) + 1) = x.name || '[');

-- lock_flows --
-- In order, as everybody locks them. Whoever ends or cancels them comes before or after.
SELECT id FROM live WHERE id = ANY($1::bigint[]) AND state = {blocked} ORDER BY id FOR UPDATE;

-- begin_flows --
WITH x AS (
  SELECT * FROM unnest($1::bigint[], $2::int[], $3::bigint[], $4::text[], $5::text[], $6::bigint[])
    AS t(id, fence, job_id, document, adopted, until_at)
), u AS (
  UPDATE live r SET state = {blocked}, reason = CASE WHEN cancel THEN r.reason ELSE 'children' END, phase = 1, node = NULL,
    eligible_at = CASE WHEN cancel THEN NULL ELSE x.until_at END
  FROM x WHERE r.id = ANY($1::bigint[]) AND r.id = x.id AND r.fence = x.fence AND +r.state = {running}
  RETURNING r.id, r.job_id, r.cancel, r.reason
), f AS (
  INSERT INTO flows (run_id, job_id, version, document, adopted)
  SELECT x.id, x.job_id, 0, x.document, x.adopted FROM x JOIN u USING (id)
), e AS (
  INSERT INTO endings (kind, run_id, job_id, parent_id, name) SELECT 'cancel', id, job_id, id, reason FROM u WHERE cancel
)
SELECT id, cancel FROM u;

-- end_overdue --
-- Workflows that took too long are marked as cancelled ones are.
WITH m AS (
  UPDATE live SET cancel = true, reason = 'timeout', eligible_at = NULL WHERE id = ANY(ARRAY(
    SELECT l.id FROM live l WHERE l.state = {blocked} AND l.reason = 'children' AND l.eligible_at <= $1
      AND EXISTS (SELECT 1 FROM flows f WHERE f.run_id = l.id) ORDER BY l.eligible_at LIMIT $2 FOR UPDATE OF l))
  RETURNING id, job_id
)
INSERT INTO endings (kind, run_id, job_id, parent_id, name) SELECT 'cancel', id, job_id, id, 'timeout' FROM m RETURNING 1;

-- step_flows --
UPDATE flows f SET version = f.version + 1 FROM unnest($1::bigint[], $2::int[]) AS x(id, version)
WHERE f.run_id = x.id AND f.version = x.version RETURNING f.run_id;

-- add_unrun --
INSERT INTO history ({history_columns})
SELECT nextval('run_id'), job_id, NULL, $2, $2, NULL, $2, NULL, 0, NULL, state, 0, priority, 0, kind, reason, NULL, message,
  NULL, NULL, data, parent_id, task, followed
FROM json_to_recordset($1::json) AS t(job_id bigint, state smallint, priority smallint, kind text, reason text, message text,
  data text, parent_id bigint, task text, followed boolean);

-- end_flows --
WITH x AS (
  SELECT * FROM unnest($1::bigint[], $2::smallint[], $3::text[], $4::text[], $5::text[])
    AS t(id, state, reason, message, result)
), d AS (
  DELETE FROM live r USING x WHERE r.id = ANY($1::bigint[]) AND r.id = x.id
  RETURNING r.*, x.state AS end_state, x.reason AS end_reason, x.message, x.result
), h AS (
  INSERT INTO history ({history_columns})
  SELECT id, job_id, trigger_id, due_at, created_at, started_at, $6, NULL, fence, NULL, end_state, attempt, priority, lost,
    kind, end_reason, node, CASE WHEN end_state = {cancelled} THEN COALESCE(cancel_note, message) ELSE message END, result, NULL,
    data, parent_id, task, followed
  FROM d
)
SELECT CASE WHEN overlap >= 2 AND gate IS NOT NULL THEN job_id END, followed FROM d;
