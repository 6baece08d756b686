-- load_previous [claim] --
SELECT j.job_id, (SELECT h.result FROM history h WHERE h.job_id = j.job_id AND h.state = {succeeded} AND h.parent_id IS NULL ORDER BY h.id DESC LIMIT 1)
FROM (SELECT value AS job_id FROM json_each($1)) AS j;

-- load_held [finish] --
SELECT r.id, r.attempt, r.lost, j.policy, r.cancel, r.trigger_id, r.job_id, r.note, {root}
FROM live r JOIN jobs j ON j.id = r.job_id WHERE r.id IN (SELECT value FROM json_each($1)) AND r.state = {running};

-- open_queues --
SELECT id, priority_offset, labels, json_extract(document, '$.org') FROM queues WHERE state <> 'paused';

-- pick --
-- The runs of a kind and queue to claim, best first, with what decides that.
SELECT json_group_array(json_array(-priority - $6, pin, id, fence + 1, attempt + 1, job_id, trigger_id, due_at, kind, name,
                                   spec, policy, data, owner, queue, priority, pass, answers, root)) FROM (
  SELECT r.priority, r.pin, r.id, r.fence, r.attempt, r.job_id, r.trigger_id, r.due_at, r.kind, j.name, j.spec, j.policy,
    r.data, j.owner, r.queue, r.pass, r.answers, {root} AS root
  FROM live r JOIN jobs j ON j.id = r.job_id
  WHERE r.state = {queued} AND r.kind = $1 AND r.queue = $5 AND r.pin IS NULL AND (r.start_by IS NULL OR r.start_by > $4)
    AND (r.needs IS NULL OR NOT EXISTS (
      SELECT 1 FROM json_each(r.needs) n WHERE n.value NOT IN (SELECT value FROM json_each($2))))
  ORDER BY r.priority DESC, r.pass, r.id LIMIT $3);

-- has_queued --
SELECT 1 FROM live WHERE state = {queued} AND kind = $1 LIMIT 1;

-- pick_pinned --
-- The same, of those that only one node may run, in any of these queues.
SELECT json_group_array(json_array(-priority - priority_offset, pin, id, fence + 1, attempt + 1, job_id, trigger_id, due_at, kind, name,
                                   spec, policy, data, owner, queue, priority, pass, answers, root)) FROM (
  SELECT r.priority, r.pin, r.id, r.fence, r.attempt, r.job_id, r.trigger_id, r.due_at, r.kind, j.name, j.spec, j.policy,
    r.data, j.owner, r.queue, r.pass, r.answers, {root} AS root, q.priority_offset
  FROM live r JOIN jobs j ON j.id = r.job_id JOIN queues q ON q.id = r.queue
  WHERE r.state = {queued} AND r.kind = $1 AND r.pin = $5 AND r.queue IN (SELECT value FROM json_each($6))
    AND (r.start_by IS NULL OR r.start_by > $4)
    AND (r.needs IS NULL OR NOT EXISTS (
      SELECT 1 FROM json_each(r.needs) n WHERE n.value NOT IN (SELECT value FROM json_each($2))))
  ORDER BY r.priority DESC, r.pass, r.id LIMIT $3);

-- claim --
-- The start deadline is met now: it does not bind a second attempt.
UPDATE live SET state = {running}, attempt = attempt + 1, fence = fence + 1, node = $1, reason = '', started_at = $2,
  start_by = NULL, phase = $4
WHERE id IN (SELECT value FROM json_each($3));

-- load_backlog [claim] --
-- Those that any agent may take, those that one may, those that some may: none is hidden behind many of another sort.
SELECT kind, pin, needs, count(*) FROM (
  SELECT * FROM (SELECT kind, pin, needs FROM live WHERE state = {queued} AND kind = $1 AND pin IS NULL AND needs IS NULL
    LIMIT $2)
  UNION ALL SELECT * FROM (SELECT kind, pin, needs FROM live WHERE state = {queued} AND kind = $1 AND pin IS NOT NULL LIMIT $2)
  UNION ALL SELECT * FROM (SELECT kind, pin, needs FROM live
    WHERE state = {queued} AND kind = $1 AND pin IS NULL AND needs IS NOT NULL LIMIT $2))
GROUP BY kind, pin, needs;

-- set_phases [finish] --
UPDATE live SET phase = x.phase
FROM (SELECT value ->> 0 AS id, value ->> 1 AS fence, value ->> 2 AS phase FROM json_each($1)) AS x
WHERE live.id = x.id AND live.fence = x.fence AND live.state = {running}
  AND ($2 IS NULL OR $2 = (SELECT n.session FROM nodes n WHERE n.name = live.node));

-- match_running --
-- What others run was begun by them, before it was claimed.
SELECT json_group_array(json_array(id, fence, CASE WHEN overlap >= 2 THEN job_id END, cancel,
  CASE WHEN kind <> 'watched' THEN started_at END, followed))
FROM live WHERE state = {running} AND id IN (SELECT value FROM json_each($1));

-- archive --
-- From live to history with what the attempt reported.
WITH x(id, state, reason, started_at, finished_at, exit_code, message, result, output) AS (VALUES {rows})
INSERT INTO history ({history_columns})
SELECT r.id, r.job_id, r.trigger_id, r.due_at, r.created_at,
  CASE WHEN r.kind = 'watched' THEN x.started_at ELSE COALESCE(x.started_at, r.started_at) END, x.finished_at, NULL, r.fence,
  x.exit_code, x.state, r.attempt, r.priority, r.lost, r.kind,
  CASE WHEN x.state = {cancelled} AND r.cancel THEN r.reason ELSE x.reason END, r.node,
  CASE WHEN x.state = {cancelled} AND r.cancel_note IS NOT NULL THEN r.cancel_note || COALESCE('; ' || NULLIF(x.message, ''), '')
    ELSE x.message END, x.result, x.output, r.data,
  r.parent_id, r.task, r.followed
FROM x CROSS JOIN live r ON r.id = x.id;

-- drop_live --
DELETE FROM live WHERE id IN (SELECT value FROM json_each($1));

-- wait --
-- $7: it is not over; one that was told already what it waits for ($8) goes on.
UPDATE live SET state = CASE WHEN $2 = {queued} OR $9 THEN {waiting_state} ELSE $2 END,
  reason = CASE WHEN $9 THEN {waiting_reason} WHEN $2 = {queued} AND demand IS NOT NULL THEN 'limit' ELSE $3 END,
  eligible_at = CASE WHEN $9 THEN NULL ELSE $4 END, lost = lost + $5,
  attempt = attempt - CASE WHEN $7 THEN $9 ELSE $6 IS NOT NULL END, phase = 1, note = CASE WHEN $9 THEN NULL ELSE $6 END,
  awaits = CASE WHEN $9 THEN NULL ELSE $8 END
WHERE id = $1 RETURNING id, demand, kind;

-- add_attempt --
INSERT INTO attempts (run_id, attempt, fence, node, state, reason, started_at, finished_at, exit_code, message, output)
SELECT id, attempt, fence, node, $2, $3, COALESCE($4, started_at), $5, $6, $7, $8 FROM live WHERE id = $1;

-- note_given --
INSERT INTO attempts (run_id, attempt, fence, node, state, reason, started_at, finished_at, exit_code, message, output)
SELECT id, attempt, fence, node, {blocked}, '', COALESCE($2, started_at), $3, NULL, '', NULL FROM live WHERE id = $1
  AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.run_id = live.id AND a.node = live.node);

-- promote --
UPDATE live SET state = {waiting_state}, gate = job_id, reason = {waiting_reason} WHERE id IN (
  SELECT min(w.id) FROM live w
  WHERE w.state = {blocked} AND w.reason = 'overlap' AND w.job_id IN (SELECT value FROM json_each($1))
    AND NOT EXISTS (SELECT 1 FROM live g WHERE g.gate = w.job_id)
  GROUP BY w.job_id) RETURNING id, demand, kind;

-- look_over [finish] --
SELECT
  (SELECT min(eligible_at) FROM live WHERE state = {blocked}),
  (SELECT min(start_by) FROM live WHERE start_by IS NOT NULL AND state <> {running}),
  (SELECT json_group_array(job_id) FROM (
    SELECT DISTINCT w.job_id FROM live w WHERE w.state = {blocked} AND w.reason = 'overlap'
      AND NOT EXISTS (SELECT 1 FROM live g WHERE g.gate = w.job_id) LIMIT 1000));

-- release --
-- What still waits for a run that writes was not put off yet, if there are very many.
-- Who was not told anything in time is told that.
UPDATE live SET state = {waiting_state}, reason = {waiting_reason}, eligible_at = NULL, waits_for = NULL, note = NULL,
  {told_late}, attempt = attempt - CASE WHEN reason IN ('snoozed', 'signal') THEN 1 ELSE 0 END, awaits = NULL
WHERE id IN (
  SELECT w.id FROM live w WHERE w.state = {blocked} AND w.reason IN ('retry', 'destination_busy', 'snoozed', 'signal')
    AND w.eligible_at <= $1
    AND NOT EXISTS (SELECT 1 FROM live h WHERE h.id = w.waits_for AND h.state = {running})
  ORDER BY w.eligible_at LIMIT $2) RETURNING id, demand, kind;

-- expired --
SELECT id, CASE WHEN overlap >= 2 AND gate IS NOT NULL THEN job_id END
FROM live WHERE start_by <= $1 AND state <> {running} ORDER BY start_by LIMIT $2;

-- unrunnable --
-- Kind by kind along the index: what can be run is not looked through. What is kept for workers outside waits for them.
-- Of what waits for limits, demands are looked through whose first runs nobody can run ($3 of each of the newest $4), and
-- what was found on the way through all ($5).
WITH RECURSIVE waiting(id, n) AS (
  SELECT max(demand), 1 FROM live WHERE state = {blocked} AND reason = 'limit'
  UNION ALL
  SELECT (SELECT max(l.demand) FROM live l WHERE l.state = {blocked} AND l.reason = 'limit' AND l.demand < w.id), n + 1
  FROM waiting w WHERE w.id IS NOT NULL AND n < $4
), unfit(id) AS MATERIALIZED (
  SELECT w.id FROM waiting w WHERE w.id IS NOT NULL AND EXISTS (
    SELECT 1 FROM live l WHERE l.kind NOT IN (SELECT value FROM json_each($1)) AND l.id IN (
      SELECT h.id FROM live h WHERE h.state = {blocked} AND h.reason = 'limit' AND h.demand = w.id
      ORDER BY h.priority DESC, h.pass, h.id LIMIT $3))
), kinds(kind) AS (
  SELECT * FROM (SELECT kind FROM live WHERE state = {queued} ORDER BY kind LIMIT 1)
  UNION ALL
  SELECT (SELECT l.kind FROM live l WHERE l.state = {queued} AND l.kind > k.kind ORDER BY l.kind LIMIT 1)
  FROM kinds k WHERE k.kind IS NOT NULL
)
SELECT l.id, l.kind FROM kinds k CROSS JOIN live l ON l.kind = k.kind AND l.state = {queued}
WHERE k.kind NOT IN (SELECT value FROM json_each($1)) AND (l.pin IS NULL OR l.pin NOT LIKE '@%')
UNION ALL
SELECT l.id, l.kind FROM unfit u CROSS JOIN live l ON l.demand = u.id AND l.state = {blocked} AND l.reason = 'limit'
WHERE l.kind NOT IN (SELECT value FROM json_each($1)) AND (l.pin IS NULL OR l.pin NOT LIKE '@%')
UNION ALL
SELECT l.id, l.kind FROM json_each($5) AS f CROSS JOIN live l ON l.id = f.value AND l.state = {blocked} AND l.reason = 'limit'
WHERE l.demand NOT IN (SELECT id FROM unfit) LIMIT $2;

-- mark_unlabelled --
UPDATE live SET reason = 'no_label' WHERE id IN (
  SELECT l.id FROM live l WHERE l.state = {queued} AND l.needs IS NOT NULL AND l.reason = '' AND NOT EXISTS (
    SELECT 1 FROM json_each($1) a WHERE NOT EXISTS (
      SELECT 1 FROM json_each(l.needs) n WHERE n.value NOT IN (SELECT value FROM json_each(a.value))))
  LIMIT $2);

-- is_open --
-- Whether a node that may stand by takes this kind of what is pinned to nobody.
SELECT 1 FROM segments s LEFT JOIN nodes n ON n.name = s.owner
WHERE s.segment = 0 AND (s.owner = $1 OR n.state <> 'gone' AND $2 NOT IN (SELECT value FROM json_each(n.kinds)));

-- may_claim --
SELECT 1 FROM nodes WHERE name = $1 AND session = $2 AND state <> 'gone';

-- note_progress [finish] --
UPDATE live SET note = x.note
FROM (SELECT value ->> 0 AS id, value ->> 1 AS fence, value ->> 2 AS note FROM json_each($1)) AS x
WHERE live.id = x.id AND live.fence = x.fence AND live.state = {running}
  AND ($2 IS NULL OR $2 = (SELECT n.session FROM nodes n WHERE n.name = live.node));
