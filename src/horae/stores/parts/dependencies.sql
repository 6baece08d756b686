-- run_at --
-- The run of a job for a moment: a live one, else one that ran, else one that did not. The newest of each state are
-- looked through, because moments have no index.
WITH s(state) AS (
  VALUES ({succeeded}), ({failed}), ({timed_out}), ({cancelled}), ({skipped}), ({coalesced})
)
SELECT id, state, result, into_run_id FROM (
  SELECT id, state, CAST(NULL AS text) AS result, CAST(NULL AS bigint) AS into_run_id, 0 AS place FROM live
  WHERE (gate = $1 OR (gate IS NULL AND job_id = $1)) AND due_at = $2 AND parent_id IS NULL
  UNION ALL
  SELECT h.id, h.state, h.result, h.into_run_id, CASE WHEN h.state < {skipped} THEN 1 ELSE 2 END
  FROM s JOIN history h ON h.id = (
    SELECT i.id FROM (
      SELECT id, due_at, parent_id FROM history WHERE job_id = $1 AND history.state = s.state ORDER BY id DESC LIMIT 5000
    ) AS i WHERE i.due_at = $2 AND i.parent_id IS NULL LIMIT 1)
) AS r ORDER BY place, id DESC LIMIT 1;

-- run_of_id --
SELECT id, state, CAST(NULL AS text) FROM live WHERE id = $1
UNION ALL SELECT id, state, result FROM history WHERE id = $1;

-- run_before --
-- The last run of a job that was made before another, and was neither skipped nor coalesced.
WITH s(state) AS (VALUES ({succeeded}), ({failed}), ({timed_out}), ({cancelled}))
SELECT id, state, result FROM (
  SELECT id, state, CAST(NULL AS text) AS result FROM live
  WHERE (gate = $1 OR (gate IS NULL AND job_id = $1)) AND id < $2 AND parent_id IS NULL AND reason <> 'later'
  UNION ALL
  SELECT h.id, h.state, h.result FROM s JOIN history h ON h.id = (
    SELECT i.id FROM history i WHERE i.job_id = $1 AND i.state = s.state AND i.id < $2 AND i.parent_id IS NULL
    ORDER BY i.id DESC LIMIT 1)
) AS r ORDER BY id DESC LIMIT 1;

-- run_since --
-- The same, of those that were made after it: the first.
WITH s(state) AS (VALUES ({succeeded}), ({failed}), ({timed_out}), ({cancelled}))
SELECT id, state, result FROM (
  SELECT id, state, CAST(NULL AS text) AS result FROM live
  WHERE (gate = $1 OR (gate IS NULL AND job_id = $1)) AND id > $2 AND parent_id IS NULL AND reason <> 'later'
  UNION ALL
  SELECT h.id, h.state, h.result FROM s JOIN history h ON h.id = (
    SELECT i.id FROM history i WHERE i.job_id = $1 AND i.state = s.state AND i.id > $2 AND i.parent_id IS NULL
    ORDER BY i.id LIMIT 1)
) AS r ORDER BY id LIMIT 1;

-- is_pending --
-- Whether a run of a job for a moment is live, or has ended and nobody has acted on that.
SELECT 1 FROM live WHERE (gate = $1 OR (gate IS NULL AND job_id = $1)) AND due_at = $2 AND parent_id IS NULL
UNION ALL SELECT 1 FROM endings WHERE kind = 'run' AND job_id = $1 AND due_at = $2 AND parent_id IS NULL
LIMIT 1;

-- release_waiting --
UPDATE live SET depends = NULL, data = $2, note = NULL, state = CASE WHEN demand IS NULL THEN {queued} ELSE {blocked} END,
  reason = CASE WHEN demand IS NULL THEN '' ELSE 'limit' END
WHERE id = $1 RETURNING id, demand, kind;

-- note_waiting --
UPDATE live SET note = $2 WHERE id = $1;

-- skip_waiting --
INSERT INTO history ({history_columns})
SELECT id, job_id, trigger_id, due_at, created_at, NULL, CAST($2 AS bigint), NULL, fence, NULL, {skipped}, attempt, priority,
  lost, kind, 'dependency', node, CAST($3 AS text), NULL, NULL, data, parent_id, task, followed
FROM live WHERE id = $1;

-- drop_waiting --
DELETE FROM live WHERE id = $1 RETURNING CASE WHEN overlap >= 2 AND gate IS NOT NULL THEN job_id END;

-- forget_followed --
UPDATE jobs SET followed = NULL WHERE id = $1;
