-- put_demands --
-- Those that are there are touched at most once an hour ($3).
INSERT INTO demands (digest, document, used_at)
SELECT value ->> 0, value ->> 1, $2 FROM json_each($1) WHERE true
ON CONFLICT (digest) DO UPDATE SET used_at = excluded.used_at WHERE demands.used_at < $3;

-- load_demand_ids --
SELECT digest, id FROM demands WHERE digest IN (SELECT value FROM json_each($1));

-- put_limits --
INSERT INTO limits (key, ready_at, used_at) SELECT value, 0, $2 FROM json_each($1) WHERE true
ON CONFLICT (key) DO UPDATE SET used_at = excluded.used_at WHERE limits.used_at < $3;

-- lock_limits --
SELECT key, capacity, ready_at, stamp FROM limits WHERE key IN (SELECT value FROM json_each($1));

-- is_waiting --
-- Whether a run waits whose demand is none of these ($1).
WITH RECURSIVE d(id) AS (
  SELECT * FROM (SELECT demand FROM live WHERE state = {blocked} AND reason = 'limit' AND demand > 0 ORDER BY demand LIMIT 1)
  UNION ALL
  SELECT (SELECT l.demand FROM live l WHERE l.state = {blocked} AND l.reason = 'limit' AND l.demand > d.id
          ORDER BY l.demand LIMIT 1) FROM d WHERE d.id IS NOT NULL
)
SELECT 1 FROM d WHERE id NOT IN (SELECT value FROM json_each($1)) LIMIT 1;

-- open_kinds --
-- Of these kinds, those that a node that may stand by takes of what is pinned to nobody.
SELECT k.value FROM json_each($1) AS k WHERE EXISTS (
  SELECT 1 FROM segments s LEFT JOIN nodes n ON n.name = s.owner WHERE s.segment = 0
    AND (s.owner = $2 OR n.state <> 'gone' AND k.value NOT IN (SELECT value FROM json_each(n.kinds))));

-- look_over_demands --
-- All that decides who may start: the moment, the lines of the nodes ($2), queues, what is running by demand, the first
-- runs of each waiting demand ($3) of these kinds ($4), and the first ordinary ones of each kind and queue.
WITH q AS MATERIALIZED (
  SELECT id, priority_offset, labels, document, version FROM queues WHERE state <> 'paused' AND NOT EXISTS (
    SELECT 1 FROM json_each(COALESCE(labels, '[]')) n WHERE n.value NOT IN (SELECT value FROM json_each($5)))
    AND (NOT EXISTS (
        SELECT 1 FROM json_each($5) WHERE value GLOB 'org=[0-9]*' AND substr(value, 5) NOT GLOB '*[^0-9]*')
      OR 'org=' || json_extract(document, '$.org') IN (SELECT value FROM json_each($5)))
)
SELECT $1,
  (SELECT json_group_array(json_array(name, session)) FROM nodes
   WHERE name IN (SELECT value FROM json_each($2)) AND state <> 'gone'),
  (SELECT json_group_array(json_array(id, priority_offset, json(labels), document, version)) FROM q),
  (SELECT json_group_array(json_array(u.demand, u.runs, (SELECT document FROM demands d WHERE d.id = u.demand))) FROM (
    SELECT demand, count(*) AS runs FROM live WHERE state = {running} AND demand IS NOT NULL GROUP BY demand) AS u),
  (SELECT json_group_array(json_array(h.id, h.demand, h.queue, h.priority, h.pass, h.due_at, h.kind, h.pin, json(h.needs),
                                      (SELECT policy FROM jobs j WHERE j.id = h.job_id)))
   FROM json_each($3) AS d CROSS JOIN live h ON h.id IN (
    SELECT l.id FROM live l
    WHERE l.state = {blocked} AND l.reason = 'limit' AND l.demand = d.value AND l.kind IN (SELECT value FROM json_each($4))
      AND (l.pin IS NULL OR l.pin IN (SELECT value FROM json_each($2))) AND l.queue IN (SELECT id FROM q)
      AND (l.needs IS NULL OR NOT EXISTS (
        SELECT 1 FROM json_each(l.needs) n WHERE n.value NOT IN (SELECT value FROM json_each($5))))
      AND (l.start_by IS NULL OR l.start_by > $1)
    ORDER BY l.priority DESC, l.pass, l.id LIMIT $6)),
  (SELECT json_group_array(json_array(o.id, NULL, o.queue, o.priority, o.pass, o.due_at, o.kind, o.pin, json(o.needs), NULL))
   FROM live o WHERE o.id IN (
    SELECT f.id FROM json_each($4) AS k CROSS JOIN q CROSS JOIN live f ON f.id IN (
      SELECT l.id FROM live l
      WHERE l.state = {queued} AND l.kind = k.value AND l.queue = q.id AND l.pin IS NULL
        AND (l.needs IS NULL OR NOT EXISTS (
          SELECT 1 FROM json_each(l.needs) n WHERE n.value NOT IN (SELECT value FROM json_each($5))))
        AND (l.start_by IS NULL OR l.start_by > $1)
      ORDER BY l.priority DESC, l.pass, l.id LIMIT $7)
    UNION ALL SELECT f.id FROM json_each($2) AS p CROSS JOIN json_each($4) AS k CROSS JOIN live f ON f.id IN (
      SELECT l.id FROM live l
      WHERE l.state = {queued} AND l.pin = p.value AND l.kind = k.value AND l.queue IN (SELECT id FROM q)
        AND (l.needs IS NULL OR NOT EXISTS (
          SELECT 1 FROM json_each(l.needs) n WHERE n.value NOT IN (SELECT value FROM json_each($5))))
        AND (l.start_by IS NULL OR l.start_by > $1)
      ORDER BY l.priority DESC, l.pass, l.id LIMIT $7)));

-- load_demanding [claim] --
-- The first runs of each of these demands.
SELECT l.kind, l.pin, l.needs FROM json_each($1) AS d JOIN live l ON l.id IN (
  SELECT w.id FROM live w WHERE w.state = {blocked} AND w.reason = 'limit' AND w.demand = d.value
  ORDER BY w.priority DESC, w.pass, w.id LIMIT $2);

-- load_supplies --
-- What live nodes have, and the runs that take some of it.
SELECT n.name, n.labels, n.kinds, n.slots, n.capacity, n.resources,
  (SELECT json_group_array(json_array(u.kind, u.runs, (SELECT d.document FROM demands d WHERE d.id = u.demand))) FROM (
    SELECT l.kind, l.demand, count(*) AS runs FROM live l WHERE l.state = {running} AND l.node = n.name
    GROUP BY l.kind, l.demand) AS u)
FROM nodes n WHERE n.state = 'live' AND n.wanted = 'live';

-- move_limits --
UPDATE limits SET ready_at = x.ready_at, stamp = $3
FROM (SELECT k.value AS key, m.value AS ready_at FROM json_each($1) AS k JOIN json_each($2) AS m ON m.key = k.key) AS x
WHERE limits.key = x.key;

-- start_demanding --
-- As `claim` starts runs.
UPDATE live SET state = {running}, attempt = attempt + 1, fence = MAX(fence + 1, $2), node = x.node, reason = '',
  start_by = NULL, started_at = $3, phase = x.phase, eligible_at = NULL, note = NULL
FROM (SELECT value ->> 0 AS id, value ->> 1 AS node, value ->> 2 AS phase FROM json_each($1)) AS x
WHERE live.id = x.id
RETURNING id, fence, attempt, job_id, trigger_id, due_at, kind,
  (SELECT json_array(j.name, j.spec, j.policy, j.owner) FROM jobs j WHERE j.id = live.job_id), data, answers,
  {root_returned};

-- drop_limits --
DELETE FROM limits WHERE used_at < $1 AND ready_at < $2 AND capacity IS NULL
  AND key NOT IN (SELECT u.value ->> 0 FROM demands d CROSS JOIN json_each(d.document, '$[0]') AS u)
RETURNING key;

-- load_limit_rows --
SELECT key, capacity, ready_at FROM limits WHERE key IN (SELECT value FROM json_each($1));
