-- load_previous [claim] --
SELECT j.job_id, (SELECT h.result FROM history h WHERE h.job_id = j.job_id AND h.state = {succeeded} AND h.parent_id IS NULL ORDER BY h.id DESC LIMIT 1)
FROM unnest($1::bigint[]) AS j(job_id);

-- load_held [finish] --
-- `+r.state`, here and where else runs are named by id: an index of running ones must not come to mind. Where few ran when
-- the tables were looked at last, it seems the shortest way, and goes by all that run, holding each against all ids.
SELECT r.id, r.attempt, r.lost, j.policy, r.cancel, r.trigger_id, r.job_id, r.note, {root}
FROM live r JOIN jobs j ON j.id = r.job_id WHERE r.id = ANY($1::bigint[]) AND +r.state = {running};

-- claim --
-- Many wants of nodes with the same labels, in one statement: the best runs of each kind and open queue by the partial
-- index, which the literal state lets serve, and those pinned to one of the nodes by theirs; the best of all are dealt
-- out, every node's first slot before anybody's second. Of queues whose runs are of equal rank, the one whose head waits
-- longest goes first. What the job says is looked up row by row: a join could begin with all jobs. The start deadline is
-- met now: it does not bind a second attempt. A row is number and Assignment, in its order.
-- The rows of the nodes are locked only where there is something to claim, and in order, as beats lock them: no new line
-- of a node opens before this has committed, and a want of an earlier line gets one row without an id.
-- Where to look is said by ranges of priorities, and by places to begin at (stores.marks); kinds and queues of which
-- nothing is said are looked through as a whole. The row of number 0 says how many entries of the index were gone by, as
-- the server counts them for this session, how many runs were locked for nothing, and how far each line has come (`far`).
-- Agents of an organisation (core.members) have what waits in its own queues, and nothing else.
-- A node that stands by ($18) has only what is pinned to it, and kinds that the active one cannot do.
-- Where each kind is wanted by one node, and no more was found than fits, all of it is given, and nobody puts it in order or
-- deals it out (`plain`): so it is of a busy node, for a fifth of the time of the server.
-- How far lines had come when this process last told ($19 …) is written down beside it.
-- Of runs that demand more than a slot, those go with the others that are granted ($23, core.policy.grants): where no more
-- of a demand wait than may start, by terms that are known, and nobody has used its keys ($24) since these were looked at.
-- Who holds a key just now is starting runs under it. Row 0 says what became of the keys ($25: the new stamp), which runs
-- of each demand were started, how many ran before, and a demand that nobody has looked at ($26: those that somebody has).
WITH c AS MATERIALIZED (
  SELECT COALESCE($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now,
    pg_stat_get_xact_tuples_returned(to_regclass('live_order')) AS counted
), w AS MATERIALIZED (
  SELECT * FROM unnest($4::text[], $5::text[], $6::int[], $7::smallint[], $8::bigint[])
    WITH ORDINALITY AS t(node, kind, room, phase, session, number)
), k AS MATERIALIZED (
  SELECT kind, sum(room) AS room, min(counted) AS counted, $18::text IS NULL OR EXISTS (
    SELECT 1 FROM segments s LEFT JOIN nodes n ON n.name = s.owner WHERE s.segment = 0
      AND (s.owner = $18 OR n.state <> 'gone' AND NOT jsonb_exists(n.kinds::jsonb, kind))) AS is_open
  FROM w CROSS JOIN c GROUP BY kind
), u AS MATERIALIZED (
  SELECT id, priority_offset, version FROM queues WHERE {queue_is_open}
), m AS MATERIALIZED (
  SELECT t.*, u.priority_offset FROM unnest($9::text[], $10::smallint[], $11::smallint[], $12::smallint[])
    AS t(kind, queue, lowest, highest) JOIN u ON u.id = t.queue
  UNION ALL SELECT k.kind, u.id, (-32768)::smallint, 32767::smallint, u.priority_offset FROM k CROSS JOIN u
  WHERE NOT EXISTS (SELECT 1 FROM unnest($9::text[], $10::smallint[]) AS t(kind, queue)
                    WHERE t.kind = k.kind AND t.queue = u.id)
), g AS MATERIALIZED (
  SELECT CAST(v ->> 0 AS bigint) AS demand, CAST(v ->> 1 AS int) AS most, ARRAY(SELECT json_array_elements_text(v -> 2)) AS keys,
    ARRAY(SELECT json_array_elements_text(v -> 3)) AS policies, CAST(v ->> 4 AS int) AS version
  FROM json_array_elements($23::json) AS t(v)
), head AS MATERIALIZED (
  SELECT g.demand, g.most, h.id, h.is_known FROM g CROSS JOIN LATERAL (
    SELECT id, (SELECT md5(j.policy) FROM jobs j WHERE j.id = live.job_id) = ANY(g.policies)
      AND (g.version IS NULL OR g.version = (SELECT version FROM u WHERE u.id = live.queue)) AS is_known
    FROM live
    WHERE state = {blocked} AND reason = 'limit' AND live.demand = g.demand AND live.queue = ANY(ARRAY(SELECT id FROM u))
      AND (pin IS NULL AND live.kind = ANY(ARRAY(SELECT kind FROM k WHERE is_open)) OR (pin, live.kind) IN (SELECT node, kind FROM w))
      AND (needs IS NULL OR needs <@ $3::text[]) AND (start_by IS NULL OR start_by > (SELECT now FROM c))
    ORDER BY priority DESC, pass, id LIMIT LEAST(g.most + 1, (SELECT sum(room) FROM k))) AS h
), x AS MATERIALIZED (
  SELECT v ->> 0 AS key, CAST(v ->> 1 AS bigint) AS stamp, CAST(v ->> 2 AS bigint) AS capacity, CAST(v ->> 3 AS bigint) AS most,
    CAST(v ->> 4 AS bigint) AS period, CAST(v ->> 5 AS bigint) AS burst
  FROM json_array_elements($24::json) AS t(v)
), few AS MATERIALIZED (
  SELECT demand FROM head GROUP BY demand HAVING count(*) <= min(most) AND bool_and(is_known)
), held AS MATERIALIZED (
  SELECT l.key FROM limits l JOIN x ON x.key = l.key AND x.stamp = l.stamp AND x.capacity IS NOT DISTINCT FROM l.capacity
  CROSS JOIN c
  WHERE l.key = ANY(ARRAY(SELECT unnest(g.keys) FROM g WHERE g.demand IN (SELECT demand FROM few)))
    AND (period IS NULL
      OR GREATEST(LEAST(l.ready_at, c.now + burst * period), c.now) + most * period <= c.now + burst * period)
  FOR UPDATE OF l SKIP LOCKED
), free AS MATERIALIZED (
  SELECT demand, keys FROM g WHERE demand IN (SELECT demand FROM few) AND keys <@ ARRAY(SELECT key FROM held)
), found AS MATERIALIZED (
  SELECT q.*, q.priority + m.priority_offset AS rank FROM m JOIN k USING (kind) CROSS JOIN LATERAL (
    SELECT id, kind, pin, priority, queue, pass, due_at FROM live
    WHERE state = {queued} AND live.kind = m.kind AND live.queue = m.queue AND priority <= m.highest AND priority >= m.lowest
      AND pin IS NULL AND (needs IS NULL OR needs <@ $3::text[])
      AND (start_by IS NULL OR start_by > (SELECT now FROM c))
    ORDER BY priority DESC, pass, id LIMIT k.room FOR UPDATE SKIP LOCKED) AS q WHERE k.is_open
  UNION ALL SELECT q.*, q.priority + u.priority_offset
  FROM unnest($13::text[], $14::smallint[], $15::smallint[], $16::bigint[], $17::bigint[])
    AS m(kind, queue, priority, pass, id) JOIN u ON u.id = m.queue JOIN k USING (kind) CROSS JOIN LATERAL (
    SELECT id, kind, pin, priority, queue, pass, due_at FROM live
    WHERE state = {queued} AND live.kind = m.kind AND live.queue = m.queue AND live.priority = m.priority
      AND (live.pass, live.id) > (m.pass, m.id) AND pin IS NULL AND (needs IS NULL OR needs <@ $3::text[])
      AND (start_by IS NULL OR start_by > (SELECT now FROM c))
    ORDER BY priority DESC, pass, id LIMIT k.room FOR UPDATE SKIP LOCKED) AS q WHERE k.is_open
  UNION ALL SELECT q.*, q.priority + u.priority_offset FROM w CROSS JOIN LATERAL (
    SELECT id, kind, pin, priority, queue, pass, due_at FROM live
    WHERE state = {queued} AND pin = w.node AND live.kind = w.kind AND (needs IS NULL OR needs <@ $3::text[])
      AND (start_by IS NULL OR start_by > (SELECT now FROM c)) AND live.queue IN (SELECT id FROM u)
    ORDER BY priority DESC, pass, id LIMIT w.room FOR UPDATE SKIP LOCKED) AS q JOIN u ON u.id = q.queue
  UNION ALL SELECT q.*, q.priority + u.priority_offset FROM (
    SELECT id, kind, pin, priority, queue, pass, due_at FROM live
    WHERE id = ANY(ARRAY(SELECT id FROM head WHERE demand IN (SELECT demand FROM free)))
      AND state = {blocked} AND reason = 'limit' FOR UPDATE SKIP LOCKED) AS q JOIN u ON u.id = q.queue
), plain AS MATERIALIZED (
  SELECT (SELECT count(DISTINCT kind) = count(*) FROM w) AND NOT EXISTS (
    SELECT 1 FROM k JOIN (SELECT kind, count(*) AS runs FROM found GROUP BY kind) AS f USING (kind) WHERE runs > room) AS is_plain
), best AS MATERIALIZED (
  SELECT id, kind, pin, 1::bigint AS nth FROM found WHERE (SELECT is_plain FROM plain)
  UNION ALL SELECT id, kind, pin, nth FROM (
    SELECT id, kind, pin, row_number() OVER (PARTITION BY kind, pin ORDER BY rank DESC, since, queue, pass, id) AS nth,
      row_number() OVER (PARTITION BY kind ORDER BY rank DESC, since, queue, pass, id) AS place
    FROM (SELECT *, max(due_at) OVER (PARTITION BY kind, queue, rank ORDER BY pass, id) AS since
          FROM found WHERE NOT (SELECT is_plain FROM plain)) AS o) AS f
  JOIN k USING (kind) WHERE place <= room
), line AS MATERIALIZED (
  SELECT name, session FROM nodes
  WHERE name = ANY($4::text[]) AND state <> 'gone' AND EXISTS (SELECT 1 FROM best) ORDER BY name FOR SHARE
), late AS MATERIALIZED (
  SELECT number FROM w WHERE session IS NOT NULL AND EXISTS (SELECT 1 FROM best WHERE best.kind = w.kind)
    AND (node, session) NOT IN (SELECT name, session FROM line)
), slot AS MATERIALIZED (
  SELECT number, node, kind, nth FROM (
    SELECT * FROM w WHERE number NOT IN (SELECT number FROM late) AND NOT (SELECT is_plain FROM plain)) AS w
  CROSS JOIN LATERAL generate_series(1, LEAST(room, (SELECT count(*) FROM best))) AS s(nth)
), given AS MATERIALIZED (
  SELECT b.id, w.number FROM best b JOIN w USING (kind)
  WHERE (SELECT is_plain FROM plain) AND w.number NOT IN (SELECT number FROM late)
  UNION ALL SELECT b.id, s.number FROM best b JOIN slot s ON s.node = b.pin AND s.kind = b.kind AND s.nth = b.nth
  WHERE NOT (SELECT is_plain FROM plain)
  UNION ALL SELECT b.id, s.number FROM best b JOIN (
    SELECT number, kind, row_number() OVER (PARTITION BY kind ORDER BY nth, number) AS place FROM slot
    WHERE (node, kind, nth) NOT IN (SELECT pin, kind, nth FROM best WHERE pin IS NOT NULL)) AS s
  ON s.kind = b.kind AND s.place = b.nth WHERE b.pin IS NULL AND NOT (SELECT is_plain FROM plain)
), claimed AS (
UPDATE live r SET {claimed}, node = w.node, started_at = (SELECT now FROM c), phase = w.phase
FROM given g JOIN w USING (number)
WHERE r.id = ANY(ARRAY(SELECT id FROM given)) AND r.id = g.id
RETURNING w.number, r.id, r.fence, r.attempt, r.job_id, r.trigger_id, r.due_at, r.kind, r.data, r.answers, r.demand, r.pin,
  r.queue, r.priority, r.pass, {root} AS root
), far AS (
  SELECT kind, queue, priority, max(pass) AS pass, count(*) FILTER (WHERE demand IS NULL) AS runs,
    max(pass) FILTER (WHERE demand IS NULL) AS last
  FROM claimed WHERE pin IS NULL GROUP BY kind, queue, priority
), place AS (
  SELECT kind, queue, priority, far.pass, runs, last, max(id) AS id
  FROM far LEFT JOIN (SELECT kind, queue, priority, pass AS last, id FROM claimed WHERE pin IS NULL AND demand IS NULL) AS l
  USING (kind, queue, priority, last) GROUP BY kind, queue, priority, far.pass, runs, last
), begun AS MATERIALIZED (
  SELECT demand, count(*) AS runs, array_agg(id) AS ids FROM head WHERE id IN (SELECT id FROM given) GROUP BY demand
), moved AS (
  UPDATE limits l SET stamp = $25, ready_at = CASE WHEN m.period IS NULL THEN l.ready_at ELSE
    GREATEST(LEAST(l.ready_at, c.now + m.burst * m.period), c.now) + m.runs * m.period END
  FROM c CROSS JOIN (
    SELECT key, period, burst, sum(runs) AS runs FROM begun JOIN free USING (demand) CROSS JOIN LATERAL unnest(keys) AS t(key)
    JOIN x USING (key) GROUP BY key, period, burst) AS m
  WHERE l.key = ANY(ARRAY(SELECT key FROM held)) AND l.key = m.key
  RETURNING l.key, l.ready_at
), saved AS (
  INSERT INTO shares (kind, queue, priority, key, pass)
  SELECT kind, queue, priority, '', pass FROM unnest($19::text[], $20::smallint[], $21::smallint[], $22::bigint[])
    AS t(kind, queue, priority, pass) ORDER BY 1, 2, 3
  ON CONFLICT (kind, queue, priority, key) DO UPDATE SET pass = GREATEST(shares.pass, excluded.pass)
)
SELECT number, id, fence, attempt, job_id, trigger_id, due_at, claimed.kind, name, spec, policy, data, owner, NULL AS secrets,
  NULL AS source, NULL AS cursor, answers, NULL AS callbacks, root
FROM claimed LEFT JOIN LATERAL (SELECT name, spec, policy, owner FROM jobs WHERE jobs.id = claimed.job_id OFFSET 0) AS j ON true
UNION ALL SELECT number, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
  NULL FROM late
UNION ALL SELECT 0, pg_stat_get_xact_tuples_returned(to_regclass('live_order')) - min(counted), NULL, NULL,
  (SELECT count(*) FROM found) - (SELECT count(*) FROM best), (SELECT now FROM c), CASE WHEN $26::bigint[] IS NOT NULL THEN (
    WITH RECURSIVE d(id) AS (
      (SELECT demand FROM live WHERE state = {blocked} AND reason = 'limit' AND demand > 0 ORDER BY demand LIMIT 1)
      UNION ALL
      SELECT (SELECT r.demand FROM live r WHERE r.state = {blocked} AND r.reason = 'limit' AND r.demand > d.id
              ORDER BY r.demand LIMIT 1) FROM d WHERE d.id IS NOT NULL
    ) SELECT id FROM d WHERE id <> ALL($26) AND id NOT IN (SELECT demand FROM free)
      AND (id NOT IN (SELECT demand FROM g) OR id IN (SELECT demand FROM head)) LIMIT 1) END,
  (SELECT json_agg(json_build_array(kind, queue, priority, pass, runs, CASE WHEN last IS NOT NULL THEN ARRAY[last, id] END))
   FROM place)::text,
  (SELECT json_object_agg(key, ready_at) FROM moved)::text,
  (SELECT json_agg(json_build_array(demand, ids, (SELECT count(*) FROM live r WHERE r.state = {running} AND r.demand = begun.demand)))
   FROM begun)::text,
  NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM k;

-- claim_lean --
-- What `claim` does where each kind is wanted by one node, nobody stands by, nothing is granted or marked, and no line is to
-- be written down: nearly always. Of a few runs, nearly all that a statement costs is what it has to prepare, and this has
-- a third of the parts. $9: whether to look for what waits for limits. How far lines have come, the caller finds out from
-- the last columns of the rows. Entries are counted before any is gone by: a part is worked out when it is first asked for.
WITH c AS MATERIALIZED (
  SELECT COALESCE($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now,
    pg_stat_get_xact_tuples_returned(to_regclass('live_order')) AS counted
), w AS MATERIALIZED (
  SELECT t.*, counted FROM unnest($4::text[], $5::text[], $6::int[], $7::smallint[], $8::bigint[])
    WITH ORDINALITY AS t(node, kind, room, phase, session, number) CROSS JOIN c
), u AS MATERIALIZED (
  SELECT id, priority_offset FROM queues WHERE {queue_is_open}
), found AS MATERIALIZED (
  SELECT q.*, w.number, w.room, q.priority + u.priority_offset AS rank FROM w CROSS JOIN u CROSS JOIN LATERAL (
    SELECT id, priority, queue, pass, due_at FROM live
    WHERE state = {queued} AND live.kind = w.kind AND live.queue = u.id AND pin IS NULL
      AND (needs IS NULL OR needs <@ $3::text[]) AND (start_by IS NULL OR start_by > (SELECT now FROM c))
    ORDER BY live.priority DESC, pass, id LIMIT w.room FOR UPDATE SKIP LOCKED) AS q
  UNION ALL SELECT q.*, w.number, w.room, q.priority + u.priority_offset FROM w CROSS JOIN LATERAL (
    SELECT id, priority, queue, pass, due_at FROM live
    WHERE state = {queued} AND pin = w.node AND live.kind = w.kind AND (needs IS NULL OR needs <@ $3::text[])
      AND (start_by IS NULL OR start_by > (SELECT now FROM c)) AND live.queue IN (SELECT id FROM u)
    ORDER BY live.priority DESC, pass, id LIMIT w.room FOR UPDATE SKIP LOCKED) AS q JOIN u ON u.id = q.queue
), many AS MATERIALIZED (
  SELECT number FROM found GROUP BY number, room HAVING count(*) > room
), best AS MATERIALIZED (
  SELECT id, number FROM found WHERE number NOT IN (SELECT number FROM many)
  UNION ALL SELECT id, number FROM (
    SELECT id, number, room, row_number() OVER (PARTITION BY number ORDER BY rank DESC, since, queue, pass, id) AS place
    FROM (SELECT *, max(due_at) OVER (PARTITION BY number, queue, rank ORDER BY pass, id) AS since
          FROM found WHERE number IN (SELECT number FROM many)) AS o) AS f WHERE place <= room
), line AS MATERIALIZED (
  SELECT name, session FROM nodes
  WHERE name = ANY($4::text[]) AND state <> 'gone' AND EXISTS (SELECT 1 FROM best) ORDER BY name FOR SHARE
), late AS MATERIALIZED (
  SELECT number FROM w WHERE session IS NOT NULL AND number IN (SELECT number FROM best)
    AND (node, session) NOT IN (SELECT name, session FROM line)
), given AS MATERIALIZED (
  SELECT id, number, node, phase FROM best JOIN w USING (number) WHERE number NOT IN (SELECT number FROM late)
), claimed AS (
UPDATE live r SET {claimed}, node = g.node, started_at = (SELECT now FROM c), phase = g.phase
FROM given g WHERE r.id = ANY(ARRAY(SELECT id FROM given)) AND r.id = g.id
RETURNING g.number, r.id, r.fence, r.attempt, r.job_id, r.trigger_id, r.due_at, r.kind, r.data, r.answers, {root} AS root,
  CASE WHEN r.pin IS NULL THEN r.queue END AS queue, r.priority, r.pass, r.demand
)
SELECT number, id, fence, attempt, job_id, trigger_id, due_at, claimed.kind, name, spec, policy, data, owner, NULL AS secrets,
  NULL AS source, NULL AS cursor, answers, NULL AS callbacks, root, queue, priority, pass, demand
FROM claimed LEFT JOIN LATERAL (SELECT name, spec, policy, owner FROM jobs WHERE jobs.id = claimed.job_id OFFSET 0) AS j ON true
UNION ALL SELECT number, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
  NULL, NULL, NULL, NULL, NULL FROM late
UNION ALL SELECT 0, pg_stat_get_xact_tuples_returned(to_regclass('live_order')) - counted, NULL, NULL,
  (SELECT count(*) FROM found) - (SELECT count(*) FROM best), now, CASE WHEN $9::boolean THEN (
    SELECT demand FROM live WHERE state = {blocked} AND reason = 'limit' AND demand > 0 ORDER BY demand LIMIT 1) END,
  NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM c;

-- enqueue_started --
-- One order whose run is given to a node as it is made: what `enqueue_alike` does, and what `claim` would do the next
-- moment, where nothing of its kind waits before it. Where anything is in the way, nothing is done.
-- Locks: job, node, share, key, gate. Whoever has the row of a node to itself waits for none of the others.
-- Two events, as of two steps: that it was queued is told here, that it was started by the trigger, which comes behind.
WITH c AS MATERIALIZED (
  SELECT COALESCE($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), j AS MATERIALIZED (
  SELECT name, spec, policy, owner FROM jobs
  WHERE id = $2::bigint AND deleted_at IS NULL AND ($3::int IS NULL OR version = $3) FOR KEY SHARE
), n AS MATERIALIZED (
  SELECT name FROM nodes WHERE name = $18::text AND session = $19::bigint AND state <> 'gone' AND EXISTS (SELECT FROM j)
    AND NOT EXISTS (SELECT FROM live WHERE gate = $14::bigint)
    AND NOT EXISTS (SELECT FROM live WHERE state = {queued} AND kind = $4)
    AND EXISTS (SELECT FROM queues WHERE id = $5 AND state <> 'paused' AND (labels IS NULL OR labels <@ $20::text[]))
  FOR SHARE
), v AS MATERIALIZED (
  SELECT nextval('run_id') AS id, $8 + GREATEST($9::bigint,
    (SELECT h.pass FROM shares h WHERE h.kind = $4 AND h.queue = $5 AND h.priority = $6 AND h.key = $7 FOR UPDATE),
    (SELECT h.pass FROM shares h WHERE h.kind = $4 AND h.queue = $5 AND h.priority = $6 AND h.key = '') - $8::bigint
  ) AS pass FROM n
), keyed AS (
  INSERT INTO idempotency (scope, key, digest, ids, created_at)
  SELECT $11, $12, $13, '[' || id || ']', now FROM c CROSS JOIN v WHERE $12::text IS NOT NULL
  ON CONFLICT (scope, key) DO NOTHING
  RETURNING scope
), made AS (
  INSERT INTO live (id, job_id, trigger_id, due_at, created_at, gate, state, priority, overlap, kind, data, queue, pass,
                    followed, attempt, fence, node, started_at, phase)
  SELECT id, $2, $16::bigint, now, now, $14, {running}, $6, $15::smallint, $4, $10::text, $5, pass, $17::boolean, 1, $22::int,
    $18, now, $21::smallint
  FROM v CROSS JOIN c WHERE $12 IS NULL OR EXISTS (SELECT FROM keyed)
  RETURNING id, fence, created_at, pass
), moved AS (
  INSERT INTO shares (kind, queue, priority, key, pass)
  SELECT $4::text, $5::smallint, $6::smallint, $7::text, pass FROM made
  ON CONFLICT (kind, queue, priority, key) DO UPDATE SET pass = GREATEST(shares.pass, excluded.pass)
), told AS (
  INSERT INTO events (stamp, at, kind, state, fence, ids, jobs)
  SELECT event_stamp(), created_at, 'run.queued', {queued}, 0, ARRAY[id], ARRAY[$2] FROM made
), audited AS (
  INSERT INTO audit (at, {audit_columns})
  SELECT c.now, {audit_of_runs} FROM c CROSS JOIN json_to_recordset($23::json) AS a({audit_types})
  CROSS JOIN (SELECT {span} AS span, count(*)::integer AS amount FROM made HAVING count(*) > 0) AS m
  ON CONFLICT (request_id, nth) DO NOTHING
)
SELECT id, fence, created_at, pass, name, spec, policy, owner FROM made CROSS JOIN j;

-- load_backlog [claim] --
-- Those that any agent may take, those that one may, those that some may: none is hidden behind many of another sort.
SELECT k.kind, q.pin, q.needs, count(*) FROM unnest($1::text[]) AS k(kind) CROSS JOIN LATERAL (
  (SELECT pin, needs FROM live WHERE state = {queued} AND live.kind = k.kind AND pin IS NULL AND needs IS NULL LIMIT $2)
  UNION ALL (SELECT pin, needs FROM live WHERE state = {queued} AND live.kind = k.kind AND pin IS NOT NULL LIMIT $2)
  UNION ALL (SELECT pin, needs FROM live
    WHERE state = {queued} AND live.kind = k.kind AND pin IS NULL AND needs IS NOT NULL LIMIT $2)) AS q
GROUP BY k.kind, q.pin, q.needs;

-- set_phases [finish] --
UPDATE live r SET phase = x.phase
FROM unnest($1::bigint[], $2::int[], $3::smallint[]) AS x(id, fence, phase)
WHERE r.id = ANY($1::bigint[]) AND r.id = x.id AND r.fence = x.fence AND +r.state = {running}
  AND ($4::bigint IS NULL OR $4 = (SELECT n.session FROM nodes n WHERE n.name = r.node));

-- finish --
-- What others run (`watched`) was begun by them, at a moment that is known or not.
-- From live to history under the fence; a waiting successor takes the gate. The clock of whoever reports may be wrong:
-- an attempt did not begin before it was claimed, nor end later than now; it keeps its length, if that makes sense.
-- Numbers come as the text of an array (stores.postgres.arrays), which is read once.
WITH c AS (
  SELECT COALESCE($11::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), x AS MATERIALIZED (
  SELECT id, fence, COALESCE(state, 10::smallint) AS state, COALESCE(reason, '') AS reason,
    started_at - GREATEST(finished_at - (SELECT now FROM c), 0) AS started_at,
    LEAST(finished_at, (SELECT now FROM c)) AS finished_at,
    exit_code, COALESCE(message, '') AS message, result, output
  FROM unnest($1::text::bigint[], $2::text::int[], $3::text::smallint[], $4::text::bigint[], $5::text::bigint[],
              $6::text::int[], $7::text[], $8::text[], $9::text[], $10::text[])
    AS t(id, fence, state, started_at, finished_at, exit_code, reason, message, result, output)
), d AS (
  DELETE FROM live r USING x WHERE r.id = ANY(ARRAY(SELECT id FROM x)) AND r.id = x.id AND r.fence = x.fence AND +r.state = {running}
  RETURNING r.id, r.job_id, r.trigger_id, r.due_at, r.created_at,
    CASE WHEN r.kind = 'watched' THEN x.started_at ELSE LEAST(GREATEST(x.started_at, r.started_at), (SELECT now FROM c)) END
      AS started_at,
    CASE WHEN x.finished_at < x.started_at THEN (SELECT now FROM c) ELSE
      LEAST(x.finished_at + GREATEST(r.started_at - COALESCE(x.started_at, x.finished_at), 0), (SELECT now FROM c))
    END AS finished_at, r.fence, x.exit_code, x.state, r.attempt, r.priority, r.lost, r.kind,
    CASE WHEN x.state = {cancelled} AND r.cancel THEN r.reason ELSE x.reason END AS reason, r.node,
    CASE WHEN x.state = {cancelled} AND r.cancel_note IS NOT NULL THEN r.cancel_note || COALESCE('; ' || NULLIF(x.message, ''), '')
      ELSE x.message END AS message, x.result, x.output,
    r.data, r.overlap, r.parent_id, r.task, r.followed
), h AS (
  INSERT INTO history ({history_columns})
  SELECT id, job_id, trigger_id, due_at, created_at, started_at, finished_at, NULL, fence, exit_code, state, attempt,
    priority, lost, kind, reason, node, message, result, output, data, parent_id, task, followed
  FROM d
), p AS (
  UPDATE live s SET state = {waiting_state}, gate = s.job_id, reason = {waiting_reason}
  WHERE s.id = ANY(ARRAY(
    SELECT min(w.id) FROM live w
    WHERE w.state = {blocked} AND w.reason = 'overlap' AND w.job_id = ANY(ARRAY(SELECT job_id FROM d WHERE overlap >= 2))
    GROUP BY w.job_id))
  RETURNING s.id, s.demand, s.kind
)
SELECT (SELECT array_agg(id) FROM d), (SELECT count(*) FROM p), (SELECT count(demand) FROM p),
  (SELECT bool_or(followed) FROM d) OR (SELECT bool_or(kind IN {by_servers}) FROM p);

-- lock_held --
-- Whether somebody wants these cancelled; from now on nobody else can say so.
SELECT id, cancel FROM live WHERE id = ANY($1::bigint[]) ORDER BY id FOR UPDATE;

-- wait --
-- Attempts that did not end their run: back to blocked or queued, with a record of the attempt, if it has begun. Times
-- as in `finish`. One that waits to be told something, and was told already, goes on; the next one has its number.
WITH c AS (
  SELECT COALESCE($16::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), x AS (
  SELECT id, fence, next_state, next_reason, eligible_at, lost, state, reason,
    started_at - GREATEST(finished_at - (SELECT now FROM c), 0) AS started_at,
    LEAST(finished_at, (SELECT now FROM c)) AS finished_at, exit_code, message, output, begun, awaits,
    next_reason IN ('snoozed', 'signal', 'children') AS waits,
    COALESCE(t.awaits IS NOT NULL AND (
      SELECT jsonb_exists(l.answers::jsonb, t.awaits) FROM live l WHERE l.id = t.id), false) AS is_told
  FROM unnest($1::bigint[], $2::int[], $3::smallint[], $4::text[], $5::bigint[], $6::smallint[],
              $7::smallint[], $8::text[], $9::bigint[], $10::bigint[], $11::int[], $12::text[], $13::text[], $14::bool[],
              $15::text[])
    AS t(id, fence, next_state, next_reason, eligible_at, lost, state, reason, started_at, finished_at, exit_code,
         message, output, begun, awaits)
), u AS (
  UPDATE live r SET state = CASE WHEN x.next_state = {queued} OR x.is_told THEN {waiting_state} ELSE x.next_state END,
    reason = CASE WHEN x.is_told THEN {waiting_reason} WHEN x.next_state = {queued} AND demand IS NOT NULL THEN 'limit'
      ELSE x.next_reason END,
    eligible_at = CASE WHEN x.is_told THEN NULL ELSE x.eligible_at END, lost = r.lost + x.lost,
    attempt = r.attempt - CASE WHEN x.begun OR (x.waits AND NOT x.is_told) THEN 0 ELSE 1 END, phase = 1,
    note = CASE WHEN x.begun OR x.is_told THEN NULL ELSE x.message END,
    awaits = CASE WHEN x.is_told THEN NULL ELSE x.awaits END
  FROM x WHERE r.id = ANY($1::bigint[]) AND r.id = x.id AND r.fence = x.fence AND +r.state = {running}
  RETURNING r.id, r.attempt + CASE WHEN x.is_told THEN 1 ELSE 0 END AS attempt, r.fence, r.node, x.state, x.reason,
    LEAST(GREATEST(x.started_at, r.started_at), (SELECT now FROM c)) AS started_at,
    CASE WHEN x.finished_at < x.started_at THEN (SELECT now FROM c) ELSE
      LEAST(x.finished_at + GREATEST(r.started_at - COALESCE(x.started_at, x.finished_at), 0), (SELECT now FROM c))
    END AS finished_at, x.exit_code, x.message, x.output, x.begun, x.waits, x.is_told, r.demand, r.kind
), a AS (
  INSERT INTO attempts (run_id, attempt, fence, node, state, reason, started_at, finished_at, exit_code, message, output)
  SELECT id, attempt, fence, node, CASE WHEN begun THEN state ELSE {blocked} END,
    CASE WHEN begun OR waits THEN reason ELSE '' END, started_at, finished_at, exit_code, message, output FROM u
  WHERE begun OR (waits AND output IS NOT NULL)
    -- That a node had it stays known, once. As NOT EXISTS, all attempts would be read beforehand.
    OR (SELECT 1 FROM attempts a WHERE a.run_id = u.id AND a.node = u.node LIMIT 1) IS NULL
)
SELECT id, demand, kind, is_told FROM u;

-- promote --
-- The oldest waiting successor of each job takes the free gate.
UPDATE live s SET state = {waiting_state}, gate = s.job_id, reason = {waiting_reason}
WHERE s.id = ANY(ARRAY(
  SELECT min(w.id) FROM live w
  WHERE w.state = {blocked} AND w.reason = 'overlap' AND w.job_id = ANY($1::bigint[])
    AND NOT EXISTS (SELECT 1 FROM live g WHERE g.gate = w.job_id)
  GROUP BY w.job_id))
RETURNING s.id, s.demand, s.kind;

-- look_over [finish] --
-- What the sweep has to do, in one cheap look: the next moment, and jobs whose successors may wait in vain.
SELECT
  (SELECT min(eligible_at) FROM live WHERE state = {blocked}),
  (SELECT min(start_by) FROM live WHERE start_by IS NOT NULL AND state <> {running}),
  ARRAY(SELECT DISTINCT w.job_id FROM live w WHERE w.state = {blocked} AND w.reason = 'overlap'
          AND NOT EXISTS (SELECT 1 FROM live g WHERE g.gate = w.job_id) LIMIT 1000),
  COALESCE($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);

-- release --
-- What still waits for a run that writes was not put off yet, if there are very many.
-- Who was not told anything in time is told that.
UPDATE live SET state = {waiting_state}, reason = {waiting_reason}, eligible_at = NULL, waits_for = NULL, note = NULL,
  {told_late}, attempt = attempt - CASE WHEN reason IN ('snoozed', 'signal') THEN 1 ELSE 0 END, awaits = NULL
WHERE id = ANY(ARRAY(
  SELECT w.id FROM live w WHERE w.state = {blocked} AND w.reason IN ('retry', 'destination_busy', 'snoozed', 'signal')
    AND w.eligible_at <= $1
    AND NOT EXISTS (SELECT 1 FROM live h WHERE h.id = w.waits_for AND h.state = {running})
  ORDER BY w.eligible_at LIMIT $2 FOR UPDATE OF w)) RETURNING id, demand, kind;

-- expire --
WITH d AS (
  DELETE FROM live WHERE id = ANY(ARRAY(
    SELECT id FROM live WHERE start_by <= $1 AND state <> {running} ORDER BY start_by LIMIT $2 FOR UPDATE)) RETURNING *
), h AS (
  INSERT INTO history ({history_columns})
  SELECT id, job_id, trigger_id, due_at, created_at, NULL, $1, NULL, fence, NULL, {skipped}, attempt, priority, lost, kind,
    'start_deadline', node, CASE WHEN reason = 'dependency' THEN 'its start deadline passed: it ' || COALESCE(note, 'waits')
      ELSE 'no agent took it before its start deadline' END, NULL, NULL, data, parent_id, task, followed
  FROM d
)
SELECT id, CASE WHEN overlap >= 2 AND gate IS NOT NULL THEN job_id END FROM d;

-- fail_unrunnable --
-- Kind by kind along the index: what can be run is not looked through. What is being claimed is left to that.
-- Of what waits for limits, demands are looked through whose first runs nobody can run ($6 of each of the newest $7), and
-- what was found on the way through all ($8).
WITH RECURSIVE waiting(id, n) AS (
  SELECT max(demand), 1 FROM live WHERE state = {blocked} AND reason = 'limit'
  UNION ALL
  SELECT (SELECT max(l.demand) FROM live l WHERE l.state = {blocked} AND l.reason = 'limit' AND l.demand < w.id), n + 1
  FROM waiting w WHERE w.id IS NOT NULL AND n < $7::int
), unfit(id) AS MATERIALIZED (
  SELECT w.id FROM waiting w WHERE w.id IS NOT NULL AND EXISTS (
    SELECT 1 FROM (SELECT kind FROM live l WHERE l.state = {blocked} AND l.reason = 'limit' AND l.demand = w.id
                   ORDER BY l.priority DESC, l.pass, l.id LIMIT $6) AS h WHERE h.kind <> ALL($1::text[]))
), kinds(kind) AS (
  (SELECT kind FROM live WHERE state = {queued} ORDER BY kind LIMIT 1)
  UNION ALL
  SELECT (SELECT l.kind FROM live l WHERE l.state = {queued} AND l.kind > k.kind ORDER BY l.kind LIMIT 1)
  FROM kinds k WHERE k.kind IS NOT NULL
), d AS (
  DELETE FROM live WHERE id = ANY(ARRAY(
    SELECT l.id FROM live l WHERE l.state = {queued}
      AND l.kind = ANY(ARRAY(SELECT kind FROM kinds WHERE kind IS NOT NULL AND kind <> ALL($1::text[])))
      AND (l.pin IS NULL OR l.pin NOT LIKE '@%')
    LIMIT $5 FOR UPDATE SKIP LOCKED)) RETURNING *
), b AS (
  DELETE FROM live WHERE id = ANY(ARRAY(
    SELECT l.id FROM live l WHERE l.state = {blocked} AND l.reason = 'limit' AND l.id = ANY($8::bigint[] || ARRAY(
        SELECT u.id FROM live u WHERE u.state = {blocked} AND u.reason = 'limit' AND u.demand = ANY(ARRAY(SELECT id FROM unfit))
          AND u.kind <> ALL($1::text[]) AND (u.pin IS NULL OR u.pin NOT LIKE '@%') LIMIT $5))
      AND l.kind <> ALL($1::text[]) AND (l.pin IS NULL OR l.pin NOT LIKE '@%')
    LIMIT $5 FOR UPDATE SKIP LOCKED)) RETURNING *
)
INSERT INTO history ({history_columns})
SELECT id, job_id, trigger_id, due_at, created_at, NULL, $3, NULL, fence, NULL, {failed}, attempt, priority, lost, kind,
  'no_agent', node, $2 || COALESCE(': ' || ($4::jsonb ->> kind), ''), NULL, NULL, data, parent_id, task, followed
FROM (SELECT * FROM d UNION ALL SELECT * FROM b) AS e RETURNING id;

-- mark_unlabelled --
UPDATE live SET reason = 'no_label' WHERE id = ANY(ARRAY(
  SELECT l.id FROM live l WHERE l.state = {queued} AND l.needs IS NOT NULL AND l.reason = ''
    AND NOT EXISTS (SELECT 1 FROM unnest($1::text[]) AS a(labels) WHERE l.needs <@ a.labels::text[])
  LIMIT $2 FOR UPDATE SKIP LOCKED))
RETURNING id;

-- note_progress [finish] --
UPDATE live r SET note = v ->> 2 FROM json_array_elements($1::json) AS t(v)
WHERE r.id = CAST(v ->> 0 AS bigint) AND r.fence = CAST(v ->> 1 AS integer) AND r.state = {running}
  AND ($2::bigint IS NULL OR $2 = (SELECT n.session FROM nodes n WHERE n.name = r.node));
