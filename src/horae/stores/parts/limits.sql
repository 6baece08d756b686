-- waiting_demands [claim] --
-- From one demand to the next along the index, however many runs wait with each.
WITH RECURSIVE d(id) AS (
  SELECT * FROM (SELECT demand FROM live WHERE state = {blocked} AND reason = 'limit' AND demand > $1 ORDER BY demand LIMIT 1) AS f
  UNION ALL
  SELECT (SELECT l.demand FROM live l WHERE l.state = {blocked} AND l.reason = 'limit' AND l.demand > d.id
          ORDER BY l.demand LIMIT 1) FROM d WHERE d.id IS NOT NULL
)
SELECT d.id, (SELECT m.document FROM demands m WHERE m.id = d.id) FROM d WHERE d.id IS NOT NULL LIMIT $2;

-- look_through [claim] --
-- Among the next $3 runs behind $2, those that wait for limits and are of none of these kinds; and how far that was.
WITH w AS MATERIALIZED (
  SELECT id, kind, state, reason, pin FROM live
  WHERE id > $2 AND EXISTS (SELECT 1 FROM live WHERE state = {blocked} AND reason = 'limit') ORDER BY id LIMIT $3
)
SELECT id, NULL FROM w
WHERE state = {blocked} AND reason = 'limit' AND kind NOT IN {names} AND (pin IS NULL OR pin NOT LIKE '@%')
UNION ALL SELECT max(id), count(*) FROM w;

-- drop_demands --
-- Whoever asks for one that was not asked for lately says so first: then it is not among these any more.
DELETE FROM demands WHERE used_at < $1 AND id IN (
  SELECT d.id FROM demands d WHERE d.used_at < $1 AND d.id NOT IN (SELECT demand FROM live WHERE demand IS NOT NULL) LIMIT $2)
RETURNING id;

-- load_resources --
SELECT key, capacity FROM limits WHERE capacity IS NOT NULL ORDER BY key;

-- set_resource --
INSERT INTO limits (key, capacity, ready_at, used_at) VALUES ($1, $2, 0, $3)
ON CONFLICT (key) DO UPDATE SET capacity = excluded.capacity, used_at = excluded.used_at;

-- drop_resource --
-- What waits for some of it is held by it no longer.
UPDATE limits SET capacity = NULL WHERE key = $1 AND capacity IS NOT NULL RETURNING key;

-- demand_of_run --
SELECT demand, (SELECT m.document FROM demands m WHERE m.id = l.demand) FROM live l
WHERE id = $1 AND state = {blocked} AND reason = 'limit' AND demand IS NOT NULL;

-- load_waiting_of --
-- How many wait with each of these demands, as far as they are counted, and what the job and queue of the first one say.
SELECT d.value,
  (SELECT count(*) FROM (SELECT 1 FROM live w WHERE w.state = {blocked} AND w.reason = 'limit' AND w.demand = d.value LIMIT $2) AS c),
  (SELECT (SELECT j.policy FROM jobs j WHERE j.id = l.job_id) FROM live l
   WHERE l.state = {blocked} AND l.reason = 'limit' AND l.demand = d.value ORDER BY l.priority DESC, l.pass, l.id LIMIT 1),
  (SELECT l.queue FROM live l
   WHERE l.state = {blocked} AND l.reason = 'limit' AND l.demand = d.value ORDER BY l.priority DESC, l.pass, l.id LIMIT 1)
FROM {ids} AS d;

-- load_holding --
-- Running runs that use limits, with what their job says.
SELECT l.id, (SELECT m.document FROM demands m WHERE m.id = l.demand), (SELECT j.policy FROM jobs j WHERE j.id = l.job_id),
  l.queue FROM live l WHERE l.state = {running} AND l.demand IS NOT NULL ORDER BY l.id LIMIT $1;

-- load_queue_documents --
SELECT id, document FROM queues;
