-- put_demands --
-- Those that are there are touched at most once an hour ($3).
INSERT INTO demands (digest, document, used_at)
SELECT v ->> 0, v ->> 1, $2 FROM json_array_elements($1::json) AS t(v) ORDER BY v ->> 0
ON CONFLICT (digest) DO UPDATE SET used_at = excluded.used_at WHERE demands.used_at < $3;

-- load_demand_ids --
SELECT digest, id FROM demands WHERE digest = ANY($1::text[]);

-- put_limits --
INSERT INTO limits (key, ready_at, used_at) SELECT key, 0, $2 FROM unnest($1::text[]) AS t(key) ORDER BY key
ON CONFLICT (key) DO UPDATE SET used_at = excluded.used_at WHERE limits.used_at < $3;

-- lock_limits --
-- In a statement of its own: what the next one counts is what is there once these are held.
SELECT key, capacity, ready_at, stamp FROM limits WHERE key = ANY($1::text[]) ORDER BY key FOR UPDATE;

-- open_kinds --
-- Of these kinds, those that a node that may stand by takes of what is pinned to nobody.
SELECT kind FROM unnest($1::text[]) AS k(kind) WHERE EXISTS (
  SELECT 1 FROM segments s LEFT JOIN nodes n ON n.name = s.owner WHERE s.segment = 0
    AND (s.owner = $2 OR n.state <> 'gone' AND NOT jsonb_exists(n.kinds::jsonb, kind)));

-- look_over_demands --
-- All that decides who may start: the moment, the lines of the nodes ($2), queues, what is running by demand, the first
-- runs of each waiting demand ($3) of these kinds ($4), and the first ordinary ones of each kind and queue. No new line
-- of a node opens before this has committed.
WITH c AS MATERIALIZED (
  SELECT COALESCE($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), q AS MATERIALIZED (
  SELECT id FROM queues WHERE state <> 'paused' AND (labels IS NULL OR labels <@ $5::text[])
    AND (NOT EXISTS (SELECT 1 FROM unnest($5::text[]) AS t(label) WHERE label ~ '^org=[0-9]+$')
      OR 'org=' || (CAST(document AS json) ->> 'org') = ANY($5::text[]))
)
SELECT (SELECT now FROM c),
  (SELECT json_agg(json_build_array(name, session)) FROM (
    SELECT name, session FROM nodes WHERE name = ANY($2::text[]) AND state <> 'gone' ORDER BY name FOR SHARE) AS n),
  (SELECT json_agg(json_build_array(id, priority_offset, to_json(labels), document, version)) FROM queues WHERE id IN (SELECT id FROM q)),
  (SELECT json_agg(json_build_array(u.demand, u.runs, (SELECT document FROM demands d WHERE d.id = u.demand))) FROM (
    SELECT demand, count(*) AS runs FROM live WHERE state = {running} AND demand IS NOT NULL GROUP BY demand) AS u),
  (SELECT json_agg(json_build_array(h.id, h.demand, h.queue, h.priority, h.pass, h.due_at, h.kind, h.pin, to_json(h.needs),
                                    (SELECT policy FROM jobs j WHERE j.id = h.job_id)))
   FROM unnest($3::bigint[]) AS d(id) CROSS JOIN LATERAL (
    SELECT id, demand, queue, priority, pass, due_at, kind, pin, needs, job_id FROM live
    WHERE state = {blocked} AND reason = 'limit' AND demand = d.id AND kind = ANY($4::text[])
      AND (pin IS NULL OR pin = ANY($2::text[])) AND (needs IS NULL OR needs <@ $5::text[])
      AND queue = ANY(ARRAY(SELECT id FROM q)) AND (start_by IS NULL OR start_by > (SELECT now FROM c))
    ORDER BY priority DESC, pass, id LIMIT $6) AS h),
  (SELECT json_agg(json_build_array(o.id, NULL, o.queue, o.priority, o.pass, o.due_at, o.kind, o.pin, to_json(o.needs), NULL))
   FROM (
    SELECT f.* FROM unnest($4::text[]) AS k(kind) CROSS JOIN q CROSS JOIN LATERAL (
      SELECT id, queue, priority, pass, due_at, kind, pin, needs FROM live
      WHERE state = {queued} AND live.kind = k.kind AND queue = q.id AND pin IS NULL
        AND (needs IS NULL OR needs <@ $5::text[]) AND (start_by IS NULL OR start_by > (SELECT now FROM c))
      ORDER BY priority DESC, pass, id LIMIT $7) AS f
    UNION ALL SELECT f.* FROM unnest($2::text[]) AS n(node) CROSS JOIN unnest($4::text[]) AS k(kind) CROSS JOIN LATERAL (
      SELECT id, queue, priority, pass, due_at, kind, pin, needs FROM live
      WHERE state = {queued} AND pin = n.node AND live.kind = k.kind AND queue = ANY(ARRAY(SELECT id FROM q))
        AND (needs IS NULL OR needs <@ $5::text[]) AND (start_by IS NULL OR start_by > (SELECT now FROM c))
      ORDER BY priority DESC, pass, id LIMIT $7) AS f) AS o);

-- load_demanding [claim] --
-- The first runs of each of these demands.
SELECT l.kind, l.pin, to_json(l.needs)::text FROM unnest($1::bigint[]) AS d(id) CROSS JOIN LATERAL (
  SELECT w.kind, w.pin, w.needs FROM live w WHERE w.state = {blocked} AND w.reason = 'limit' AND w.demand = d.id
  ORDER BY w.priority DESC, w.pass, w.id LIMIT $2) AS l;

-- load_supplies --
-- What live nodes have, and the runs that take some of it.
SELECT n.name, n.labels, n.kinds, n.slots, n.capacity, n.resources,
  (SELECT json_agg(json_build_array(u.kind, u.runs, (SELECT d.document FROM demands d WHERE d.id = u.demand))) FROM (
    SELECT l.kind, l.demand, count(*) AS runs FROM live l WHERE l.state = {running} AND l.node = n.name
    GROUP BY l.kind, l.demand) AS u)
FROM nodes n WHERE n.state = 'live' AND n.wanted = 'live';

-- move_limits --
-- Runs were started under these keys ($3: by whom).
UPDATE limits l SET ready_at = m.ready_at, stamp = $3 FROM unnest($1::text[], $2::bigint[]) AS m(key, ready_at)
WHERE l.key = ANY($1::text[]) AND l.key = m.key;

-- start_demanding --
-- As `claim` starts runs. One that somebody ends just now is left to that.
WITH x AS MATERIALIZED (
  SELECT CAST(v ->> 0 AS bigint) AS id, v ->> 1 AS node, CAST(v ->> 2 AS smallint) AS phase
  FROM json_array_elements($1::json) AS t(v)
), picked AS MATERIALIZED (
  SELECT id FROM live WHERE id = ANY(ARRAY(SELECT id FROM x)) AND state = {blocked} AND reason = 'limit'
  ORDER BY id FOR UPDATE SKIP LOCKED
)
UPDATE live r SET state = {running}, attempt = attempt + 1, fence = GREATEST(fence + 1, $2), node = x.node, reason = '',
  start_by = NULL, started_at = $3, phase = x.phase, eligible_at = NULL, note = NULL
FROM x WHERE r.id = ANY(ARRAY(SELECT id FROM picked)) AND r.id = x.id
RETURNING r.id, r.fence, r.attempt, r.job_id, r.trigger_id, r.due_at, r.kind,
  (SELECT json_build_array(j.name, j.spec, j.policy, j.owner) FROM jobs j WHERE j.id = r.job_id), r.data, r.answers, {root};

-- drop_limits --
DELETE FROM limits WHERE used_at < $1 AND ready_at < $2 AND capacity IS NULL
  AND key NOT IN (SELECT u ->> 0 FROM demands d CROSS JOIN json_array_elements(CAST(d.document AS json) -> 0) AS t(u))
RETURNING key;

-- load_limit_rows --
SELECT key, capacity, ready_at FROM limits WHERE key = ANY($1::text[]);
