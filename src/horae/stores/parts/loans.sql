-- lend_runs --
-- A claim, for somebody who has not begun yet. A start deadline that has passed binds here too.
UPDATE live SET state = {running}, attempt = attempt + 1, node = $2, reason = '', start_by = NULL, started_at = $3, phase = 0,
  pin = COALESCE(CAST($5 AS text), pin),
  fence = CASE WHEN fence + 1 > CAST($4 AS integer) THEN fence + 1 ELSE CAST($4 AS integer) END
WHERE id IN {ids} AND state = {queued} AND (start_by IS NULL OR start_by > $3)
RETURNING id, job_id, fence, attempt;

-- head_of_run --
-- One that limits hold, of a queue from which anybody may take.
SELECT l.id, l.demand, l.queue, l.priority, l.pass, l.due_at, l.kind, NULL, NULL,
  (SELECT j.policy FROM jobs j WHERE j.id = l.job_id)
FROM live l JOIN {open_queues} AS u ON u.id = l.queue WHERE l.id = $1 AND l.state = {blocked} AND l.reason = 'limit'
  AND (l.start_by IS NULL OR l.start_by > $2);

-- note_loans --
-- An earlier loan of the same run may have left its row; how far it came, its next worker outside Horae goes on from.
INSERT INTO loans (run_id, fence, worker, until_at)
SELECT id, fence, CAST($2 AS text), CAST($3 AS bigint) FROM live WHERE id IN {ids}
ON CONFLICT (run_id) DO UPDATE
SET fence = excluded.fence, worker = excluded.worker, until_at = excluded.until_at,
  progress = CASE WHEN (SELECT l.pin FROM live l WHERE l.id = excluded.run_id) LIKE '@%' THEN loans.progress END;

-- renew_run --
UPDATE live SET node = $3, phase = COALESCE(CAST($4 AS smallint), phase), pin = COALESCE(CAST($5 AS text), pin)
WHERE id = $1 AND state = {running} AND (CAST($2 AS bigint) IS NULL OR attempt = CAST($2 AS bigint))
  AND (CAST($6 AS text) IS NULL OR node = CAST($6 AS text))
  AND EXISTS (SELECT 1 FROM loans o WHERE o.run_id = live.id AND o.fence = live.fence)
RETURNING cancel;

-- renew_loan --
UPDATE loans SET worker = $2, until_at = $3, progress = COALESCE($4, progress) WHERE run_id = $1;

-- pass_run --
-- From one who has not begun to another; of two who want it, one finds it still with the first.
UPDATE live SET node = CAST($4 AS text), pin = CAST($5 AS text)
WHERE id = $1 AND fence = $2 AND node = $3 AND state = {running} AND phase = 0
  AND EXISTS (SELECT 1 FROM loans o WHERE o.run_id = live.id AND o.fence = live.fence)
RETURNING id;

-- load_kept [claim] --
-- Queued runs that only workers outside Horae may have.
SELECT l.id, l.job_id, o.progress FROM live l LEFT JOIN loans o ON o.run_id = l.id
WHERE l.state = {queued} AND l.pin = $1 ORDER BY l.priority DESC, l.pass, l.id LIMIT $2;

-- mark_kept --
UPDATE live SET reason = $3 WHERE id IN {ids} AND state = {queued} AND pin = $2 AND reason <> $3;

-- free_kept --
UPDATE live SET pin = NULL WHERE id IN {ids} AND state = {queued} AND pin = $2 AND attempt = 0 RETURNING id;

-- load_loans [claim] --
SELECT o.run_id, l.job_id, o.fence, l.attempt, o.worker, o.until_at, o.progress
FROM loans o JOIN live l ON l.id = o.run_id AND l.fence = o.fence
WHERE l.state = {running} AND (CAST($1 AS {list}) IS NULL OR o.run_id IN {ids}) ORDER BY l.started_at, o.run_id;

-- load_overdue_loans --
SELECT o.run_id, l.job_id, o.fence, l.attempt, o.worker, o.until_at, o.progress
FROM loans o JOIN live l ON l.id = o.run_id AND l.fence = o.fence
WHERE l.state = {running} AND o.until_at <= $1 ORDER BY o.until_at, o.run_id LIMIT $2;

-- drop_loans --
-- By the fence that was seen: a run that is being lent anew has another one by the time its row is reached. What is
-- left of a loan whose run goes to another worker outside Horae stays: it says how far it came.
WITH ended AS MATERIALIZED (
  SELECT o.run_id, o.fence FROM loans o
  WHERE NOT EXISTS (
    SELECT 1 FROM live l WHERE l.id = o.run_id AND (l.pin LIKE '@%' OR l.fence = o.fence AND l.state = {running})) LIMIT $1
)
DELETE FROM loans WHERE (run_id, fence) IN (SELECT run_id, fence FROM ended) RETURNING run_id;

-- drop_loan --
DELETE FROM loans WHERE run_id = $1 AND NOT EXISTS (SELECT 1 FROM live l WHERE l.id = $1 AND l.pin LIKE '@%');

-- return_run --
-- That of a run that somebody wants cancelled keeps its reason; one that limits held waits for them anew.
UPDATE live SET state = {waiting_state}, reason = CASE WHEN cancel THEN reason ELSE {waiting_reason} END, node = NULL, attempt = attempt - 1, started_at = NULL, phase = 1, note = NULL,
  pin = CAST($4 AS text), start_by = CASE WHEN attempt = 1 THEN CAST($3 AS bigint) END
WHERE id = $1 AND fence = $2 AND state = {running} AND (CAST($5 AS text) IS NULL OR node = CAST($5 AS text))
  AND EXISTS (SELECT 1 FROM loans o WHERE o.run_id = live.id AND o.fence = live.fence)
RETURNING cancel, job_id;

-- bury_returned --
INSERT INTO history ({history_columns})
SELECT id, job_id, trigger_id, due_at, created_at, NULL, CAST($2 AS bigint), NULL, fence, NULL, {cancelled}, attempt, priority,
  lost, kind, reason, NULL, COALESCE(cancel_note, ''), NULL, NULL, data, parent_id, task, followed
FROM live WHERE id = $1;

-- drop_returned --
DELETE FROM live WHERE id = $1;
