-- enqueue --
-- Runs by request, by the same rule as those of triggers, all in one statement. They come as JSON: of one order, sixteen
-- arrays would cost more than the rest. Keys that were used before make none, be they of one or of a group of orders,
-- nor do jobs that are deleted or of another version by now. Those that are left are locked against their deletion and
-- change, which would not see what is being made here. Who waits for a later moment takes no gate. `forbid` runs that
-- find it taken become history at once, as do all whose owner may not run them; those of `queue` and `replace` are left
-- to the caller.
-- Shares are locked before keys and gates, by everybody, so that nobody waits in a circle; see `fire`. What takes no gate
-- meets nobody, and is written without a look.
WITH c AS (
  SELECT COALESCE($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), alive AS MATERIALIZED (
  SELECT id, version FROM jobs WHERE id = ANY($2::bigint[]) AND deleted_at IS NULL ORDER BY id FOR KEY SHARE
), asked AS MATERIALIZED (
  SELECT t.*, alive.version AS found, placed_id IS NULL AND run_at > (SELECT now FROM c) AND barred IS NOT TRUE AS is_later
  FROM ROWS FROM (json_to_recordset($3::json) AS (
      job_id bigint, overlap smallint, start_by bigint, data text, needs text, pin text, version int, run_at bigint,
      start_within bigint, scope text, key text, digest text, placed_id bigint, placed_at bigint, demand bigint, share int,
      nth int, parent_id bigint, task text, followed boolean, resumes bigint, trigger_id bigint, depends boolean,
      barred boolean))
    WITH ORDINALITY AS t(job_id, overlap, start_by, data, needs, pin, version, run_at, start_within, scope, key, digest,
                         placed_id, placed_at, demand, share, nth, parent_id, task, followed, resumes, trigger_id,
                         depends, barred, number)
  LEFT JOIN alive ON alive.id = t.job_id
), v AS MATERIALIZED (
  SELECT asked.*, COALESCE(placed_id, nextval('run_id')) AS run_id, COALESCE(placed_at, (SELECT now FROM c)) AS made_at,
    CASE WHEN placed_id IS NOT NULL OR is_later THEN run_at ELSE (SELECT now FROM c) END AS due_at,
    COALESCE(share, 1) AS place
  FROM asked WHERE found IS NOT NULL AND (version IS NULL OR version = found)
), s AS MATERIALIZED (
  SELECT array_agg(GREATEST(g.now_at,
    (SELECT h.pass FROM shares h WHERE h.kind = g.kind AND h.queue = g.queue AND h.priority = g.priority AND h.key = g.key
     FOR UPDATE),
    (SELECT h.pass FROM shares h WHERE h.kind = g.kind AND h.queue = g.queue AND h.priority = g.priority AND h.key = '')
     - g.step
  )) AS at
  FROM unnest($4::text[], $5::smallint[], $6::smallint[], $7::text[], $8::bigint[], $9::bigint[])
    AS g(kind, queue, priority, key, step, now_at)
), keyed AS (
  INSERT INTO idempotency (scope, key, digest, ids, created_at)
  SELECT scope, key, digest, '[' || run_id || ']', (SELECT now FROM c) FROM v
  WHERE key IS NOT NULL AND (SELECT at FROM s) IS NOT NULL ORDER BY scope, key
  ON CONFLICT (scope, key) DO NOTHING
  RETURNING scope, key
), grouped AS (
  INSERT INTO idempotency (scope, key, digest, ids, created_at)
  SELECT $10, $11, $12, COALESCE((
      SELECT json_agg(e.value ORDER BY v.number, e.nth)
      FROM v CROSS JOIN LATERAL (VALUES (1, ($13::bigint[])[number]), (2, run_id)) AS e(nth, value))::text, '[]'), now
  FROM c WHERE $11::text IS NOT NULL AND (SELECT at FROM s) IS NOT NULL
  ON CONFLICT (scope, key) DO NOTHING
  RETURNING scope
), fresh AS MATERIALIZED (
  SELECT v.*, ($4::text[])[place] AS kind, ($5::smallint[])[place] AS queue, ($6::smallint[])[place] AS priority,
    (SELECT at FROM s)[place] + COALESCE(nth, number) * ($8::bigint[])[place] AS pass
  FROM v WHERE (key IS NULL OR (scope, key) IN (SELECT scope, key FROM keyed))
    AND ($11::text IS NULL OR EXISTS (SELECT FROM grouped))
), new AS (
  SELECT run_id, job_id, trigger_id, due_at, made_at, CASE WHEN overlap <> 1 AND is_later IS NOT TRUE THEN job_id END AS gate,
    COALESCE(due_at + start_within, start_by), CASE WHEN is_later THEN run_at END,
    CASE WHEN is_later THEN {blocked} ELSE {waiting_state} END, CASE WHEN is_later THEN 'later' ELSE {waiting_reason} END,
    priority, overlap, kind, needs::text[], data, pin, queue, pass,
    CASE WHEN is_later THEN ($8::bigint[])[place] || ' ' || ($7::text[])[place] END, demand,
    parent_id, task, followed, resumes, depends
  FROM fresh WHERE barred IS NOT TRUE ORDER BY number
), apart AS (
  INSERT INTO live (id, job_id, trigger_id, due_at, created_at, gate, start_by, eligible_at, state, reason, priority, overlap, kind,
                    needs, data, pin, queue, pass, share, demand, parent_id, task, followed, resumes, depends)
  SELECT * FROM new WHERE gate IS NULL
  RETURNING id
), beside AS (
  INSERT INTO live (id, job_id, trigger_id, due_at, created_at, gate, start_by, eligible_at, state, reason, priority, overlap, kind,
                    needs, data, pin, queue, pass, share, demand, parent_id, task, followed, resumes, depends)
  SELECT * FROM new WHERE gate IS NOT NULL
  ON CONFLICT (gate) WHERE gate IS NOT NULL DO NOTHING
  RETURNING id, gate
), made AS (
  SELECT id, NULL::bigint AS gate FROM apart UNION ALL SELECT id, gate FROM beside
), moved AS (
  INSERT INTO shares (kind, queue, priority, key, pass)
  SELECT ($4::text[])[place] AS kind, ($5::smallint[])[place] AS queue, ($6::smallint[])[place] AS priority,
    ($7::text[])[place] AS key, max(pass)
  FROM fresh WHERE is_later IS NOT TRUE AND (run_id IN (SELECT id FROM made)) IS TRUE GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
  ON CONFLICT (kind, queue, priority, key) DO UPDATE SET pass = GREATEST(shares.pass, excluded.pass)
), skipped AS (
  INSERT INTO history ({history_columns})
  SELECT run_id, job_id, trigger_id, due_at, made_at, NULL, (SELECT now FROM c), NULL, 0, NULL, {skipped}, 0, priority, 0, kind,
    CASE WHEN barred THEN 'owner' ELSE 'overlap' END, NULL, CASE WHEN barred THEN '' ELSE 'another run of this job was live'
      || COALESCE(': run ' || COALESCE(m.id, (SELECT l.id FROM live l WHERE l.gate = fresh.job_id)), '') END, NULL,
    NULL, data, parent_id, task, followed
  FROM fresh LEFT JOIN made m ON m.gate = fresh.job_id
  WHERE barred OR overlap = 0 AND run_id NOT IN (SELECT id FROM made)
  RETURNING id, message
), audited AS (
  INSERT INTO audit (at, {audit_columns})
  SELECT c.now, {audit_of_runs} FROM c CROSS JOIN json_to_recordset($14::json) AS a({audit_types}, first integer, last integer)
  CROSS JOIN LATERAL (SELECT {span} AS span, count(*)::integer AS amount FROM (
    SELECT run_id AS id FROM fresh WHERE number BETWEEN a.first AND a.last) AS f HAVING count(*) > 0) AS m
  ON CONFLICT (request_id, nth) DO NOTHING
)
SELECT ARRAY(SELECT found FROM asked ORDER BY number),
  ARRAY(SELECT f.run_id FROM asked LEFT JOIN fresh f USING (number) ORDER BY number),
  ARRAY(SELECT id FROM made), (SELECT now FROM c), (SELECT json_object_agg(id, message) FROM skipped);

-- enqueue_together --
-- Orders of several people, due now, that take no gate and differ in job, data, key and who asks alone: what `enqueue`
-- does, without what others of them may need. Locks are taken in its order: jobs, share, keys.
WITH c AS MATERIALIZED (
  SELECT COALESCE($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), j AS MATERIALIZED (
  SELECT id, version FROM jobs WHERE id = ANY($2::bigint[]) AND deleted_at IS NULL ORDER BY id FOR KEY SHARE
), asked AS MATERIALIZED (
  SELECT t.*, j.version AS found
  FROM unnest($2::bigint[], $3::int[], $4::text[], $5::text[], $6::text[], $7::text[])
    WITH ORDINALITY AS t(job_id, version, data, scope, key, digest, number)
  LEFT JOIN j ON j.id = t.job_id
), s AS MATERIALIZED (
  SELECT GREATEST($13::bigint,
    (SELECT h.pass FROM shares h WHERE h.kind = $8 AND h.queue = $9 AND h.priority = $10 AND h.key = $11 FOR UPDATE),
    (SELECT h.pass FROM shares h WHERE h.kind = $8 AND h.queue = $9 AND h.priority = $10 AND h.key = '') - $12::bigint
  ) AS at
  FROM (SELECT count(*) AS jobs FROM j) AS locked WHERE locked.jobs > 0
), v AS MATERIALIZED (
  SELECT nextval('run_id') AS id, number, job_id, data, scope, key, digest, at + number * $12 AS pass
  FROM s CROSS JOIN asked WHERE found IS NOT NULL AND (version IS NULL OR version = found)
), keyed AS (
  INSERT INTO idempotency (scope, key, digest, ids, created_at)
  SELECT scope, key, digest, '[' || id || ']', now FROM v CROSS JOIN c WHERE key IS NOT NULL ORDER BY scope, key
  ON CONFLICT (scope, key) DO NOTHING
  RETURNING scope, key
), made AS (
  INSERT INTO live (id, job_id, trigger_id, due_at, created_at, start_by, state, reason, priority, overlap, kind, needs,
                    data, pin, queue, pass, demand, parent_id, task, followed, resumes, depends)
  SELECT id, job_id, $22::bigint, now, now, COALESCE(now + $18::bigint, $17::bigint), $15::smallint, $16::text, $10,
    $14::smallint, $8, $19::text[], data, $20::text, $9, pass, $21::bigint, $23::bigint, $24::text, $25::boolean,
    $26::bigint, $27::boolean
  FROM v CROSS JOIN c WHERE key IS NULL OR (scope, key) IN (SELECT scope, key FROM keyed)
  RETURNING id, pass
), moved AS (
  INSERT INTO shares (kind, queue, priority, key, pass)
  SELECT $8::text, $9::smallint, $10::smallint, $11::text, max(pass) FROM made HAVING max(pass) IS NOT NULL
  ON CONFLICT (kind, queue, priority, key) DO UPDATE SET pass = GREATEST(shares.pass, excluded.pass)
), done AS MATERIALIZED (
  SELECT number, v.id FROM v JOIN made USING (id)
), audited AS (
  INSERT INTO audit (at, {audit_columns})
  SELECT c.now, {audit_of_runs} FROM c CROSS JOIN json_to_recordset($28::json) AS a({audit_types}, first integer, last integer)
  CROSS JOIN LATERAL (SELECT {span} AS span, count(*)::integer AS amount FROM done
    WHERE number BETWEEN a.first AND a.last HAVING count(*) > 0) AS m
  ON CONFLICT (request_id, nth) DO NOTHING
)
SELECT ARRAY(SELECT found FROM asked ORDER BY number),
  ARRAY(SELECT done.id FROM asked LEFT JOIN done USING (number) ORDER BY number), now FROM c;

-- enqueue_alike --
-- Orders of one job that differ in their data alone, due now, under one key or none: what `enqueue` does, where nothing
-- stands in their way. It has no list of orders to read, sort and put together again, and costs half as much; of one
-- order, nearly all that a statement costs is what it has to prepare. Where there is something (the job has another
-- version or is gone, its gate is held, the key was used), nothing is done, and the caller finds out. Only one order at a
-- time may take a gate; who loses a race for it comes again.
-- Locks are taken in the order of `enqueue`: job, share, key, gate.
WITH c AS MATERIALIZED (
  SELECT COALESCE($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), j AS MATERIALIZED (
  SELECT version FROM jobs WHERE id = $2::bigint AND deleted_at IS NULL FOR KEY SHARE
), s AS MATERIALIZED (
  SELECT GREATEST($9::bigint,
    (SELECT h.pass FROM shares h WHERE h.kind = $4 AND h.queue = $5 AND h.priority = $6 AND h.key = $7 FOR UPDATE),
    (SELECT h.pass FROM shares h WHERE h.kind = $4 AND h.queue = $5 AND h.priority = $6 AND h.key = '') - $8::bigint
  ) AS at
  FROM j WHERE ($3::int IS NULL OR version = $3) AND NOT EXISTS (SELECT FROM live WHERE gate = $15::bigint)
), v AS MATERIALIZED (
  SELECT nextval('run_id') AS id, number, data, at + number * $8 AS pass
  FROM s CROSS JOIN unnest($10::text[]) WITH ORDINALITY AS t(data, number)
), keyed AS (
  INSERT INTO idempotency (scope, key, digest, ids, created_at)
  SELECT $11, $12, $13,
    '[' || (SELECT string_agg(CASE WHEN $14::boolean THEN (number - 1) || ',' || id ELSE id::text END, ',') FROM v) || ']', now
  FROM c CROSS JOIN s WHERE $12::text IS NOT NULL
  ON CONFLICT (scope, key) DO NOTHING
  RETURNING scope
), made AS (
  INSERT INTO live (id, job_id, trigger_id, due_at, created_at, gate, start_by, state, reason, priority, overlap, kind, needs,
                    data, pin, queue, pass, demand, parent_id, task, followed, resumes, depends)
  SELECT id, $2, $24::bigint, now, now, $15, COALESCE(now + $20::bigint, $19::bigint), $17::smallint, $18::text, $6, $16::smallint,
    $4, $21::text[], data, $22::text, $5, pass, $23::bigint, $25::bigint, $26::text, $27::boolean, $28::bigint, $29::boolean
  FROM v CROSS JOIN c WHERE $12 IS NULL OR EXISTS (SELECT FROM keyed)
  RETURNING id, pass
), moved AS (
  INSERT INTO shares (kind, queue, priority, key, pass)
  SELECT $4::text, $5::smallint, $6::smallint, $7::text, max(pass) FROM made HAVING max(pass) IS NOT NULL
  ON CONFLICT (kind, queue, priority, key) DO UPDATE SET pass = GREATEST(shares.pass, excluded.pass)
), audited AS (
  INSERT INTO audit (at, {audit_columns})
  SELECT c.now, {audit_of_runs} FROM c CROSS JOIN json_to_recordset($30::json) AS a({audit_types})
  CROSS JOIN (SELECT {span} AS span, count(*)::integer AS amount FROM made HAVING count(*) > 0) AS m
  ON CONFLICT (request_id, nth) DO NOTHING
)
SELECT (SELECT version FROM j), ARRAY(SELECT id FROM made), now, EXISTS (SELECT FROM live WHERE gate = $15) FROM c;

-- calm --
-- Orders that wait for others of their kind, each in the place of the one that does: of several in one batch, the last.
-- The index decides between callers at once; whoever waited for another's row looks at the clock after that. Keys that
-- were used before do nothing; of the others, `key_calm` says what they stand for.
WITH c AS MATERIALIZED (
  SELECT COALESCE($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), alive AS MATERIALIZED (
  SELECT id, version FROM jobs WHERE id = ANY($2::bigint[]) AND deleted_at IS NULL ORDER BY id FOR KEY SHARE
), asked AS MATERIALIZED (
  SELECT t.*, alive.version AS found
  FROM ROWS FROM (json_to_recordset($3::json) AS (
      job_id bigint, overlap smallint, data text, needs text, pin text, version int, start_within bigint, scope text,
      key text, digest text, demand bigint, followed boolean, trigger_id bigint, kind text, queue smallint,
      priority smallint, share text, debounce text, wait bigint, at_most bigint))
    WITH ORDINALITY AS t(job_id, overlap, data, needs, pin, version, start_within, scope, key, digest, demand, followed,
                         trigger_id, kind, queue, priority, share, debounce, wait, at_most, number)
  LEFT JOIN alive ON alive.id = t.job_id
), v AS MATERIALIZED (
  SELECT asked.*, (SELECT now FROM c) AS now, (SELECT now FROM c) + at_most AS latest_at FROM asked
  WHERE found IS NOT NULL AND (version IS NULL OR version = found)
), keyed AS (
  INSERT INTO idempotency (scope, key, digest, ids, created_at)
  SELECT scope, key, digest, '[]', now FROM v WHERE key IS NOT NULL ORDER BY scope, key
  ON CONFLICT (scope, key) DO NOTHING
  RETURNING scope, key
), fresh AS MATERIALIZED (
  SELECT v.* FROM v WHERE key IS NULL OR (scope, key) IN (SELECT scope, key FROM keyed)
), last AS MATERIALIZED (
  SELECT DISTINCT ON (job_id, debounce) *, now + wait AS due_at FROM fresh
  ORDER BY job_id, debounce, number DESC
), made AS (
  INSERT INTO live AS w (id, job_id, trigger_id, due_at, created_at, start_by, eligible_at, state, reason, priority, overlap,
                         kind, needs, data, pin, queue, pass, share, demand, followed, debounce, latest_at)
  SELECT nextval('run_id'), job_id, trigger_id, due_at, now, due_at + start_within, due_at, {blocked}, 'debounce', priority,
    overlap, kind, needs::text[], data, pin, queue, 0, share, demand, followed, debounce, latest_at
  FROM last ORDER BY job_id, debounce
  ON CONFLICT (job_id, debounce) WHERE debounce IS NOT NULL DO UPDATE
  SET (due_at, eligible_at, start_by) = (
      SELECT at, at, at + (excluded.start_by - excluded.due_at) FROM (SELECT LEAST(COALESCE($1::bigint,
        (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + excluded.due_at - excluded.created_at, w.latest_at) AS at) AS moved),
    trigger_id = excluded.trigger_id, priority = excluded.priority, overlap = excluded.overlap, kind = excluded.kind,
    needs = excluded.needs, data = excluded.data, pin = excluded.pin, queue = excluded.queue, share = excluded.share,
    demand = excluded.demand, followed = excluded.followed
  RETURNING id, job_id, debounce, created_at, due_at, latest_at, xmax <> 0 AS replaced
)
SELECT a.found, m.id, m.created_at, m.due_at, m.replaced OR f.number > first.number, l.number, (SELECT now FROM c)
FROM asked a LEFT JOIN fresh f USING (number)
LEFT JOIN made m ON m.job_id = f.job_id AND m.debounce = f.debounce
LEFT JOIN last l ON l.job_id = f.job_id AND l.debounce = f.debounce
LEFT JOIN LATERAL (
  SELECT min(o.number) AS number FROM fresh o WHERE o.job_id = f.job_id AND o.debounce = f.debounce) AS first ON true
ORDER BY a.number;

-- key_calm --
UPDATE idempotency i SET ids = '[' || k.run_id || ']'
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS k(scope, key, run_id) WHERE i.scope = k.scope AND i.key = k.key;

-- take_later --
-- Orders whose moment has come, taken out of the way to be made into runs in the same transaction. Their jobs first, as
-- a deletion locks them. One that another order has put off meanwhile stays.
WITH w AS MATERIALIZED (
  SELECT id, job_id FROM live WHERE state = {blocked} AND reason IN ('later', 'debounce') AND eligible_at <= $1
  ORDER BY eligible_at, id LIMIT $2
), j AS MATERIALIZED (
  SELECT id, kind, policy FROM jobs WHERE id = ANY(ARRAY(SELECT job_id FROM w)) AND deleted_at IS NULL ORDER BY id
  FOR KEY SHARE
), d AS (
  DELETE FROM live USING j WHERE live.id = ANY(ARRAY(SELECT id FROM w)) AND live.job_id = j.id AND live.state = {blocked}
    AND live.reason IN ('later', 'debounce') AND live.eligible_at <= $1
  RETURNING live.id, live.job_id, live.due_at, live.created_at, live.start_by, live.priority, live.data, live.pin, j.kind,
    j.policy, live.queue, live.share, live.demand, live.trigger_id, live.followed
)
SELECT * FROM d ORDER BY due_at, id;
