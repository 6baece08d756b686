-- lock_segments --
-- Two workers that ask at once must not see the same segments free.
LOCK TABLE taken_segments IN SHARE ROW EXCLUSIVE MODE;

-- hold_node --
-- Until the end of the transaction; also one that is not there yet.
SELECT pg_advisory_xact_lock(hashtextextended('node ' || $1::text, 0));

-- lock_node --
-- Asked after it is held, so that whoever had it before is seen. Beats and claims lock the row, and wait.
SELECT state, wanted, evicted_at FROM nodes WHERE name = $1 FOR NO KEY UPDATE;

-- bury_nodes --
-- Only what was seen to stand still, and only by whom the lead belongs to. Locked in order, as beats and claims do.
WITH x AS (
  SELECT v ->> 0 AS name, CAST(v ->> 1 AS bigint) AS beat, CAST(v ->> 2 AS bigint) AS session, v ->> 3 AS state
  FROM json_array_elements($1::json) AS t(v)
), o AS MATERIALIZED (
  SELECT name FROM nodes WHERE name = ANY(ARRAY(SELECT name FROM x)) ORDER BY name FOR NO KEY UPDATE
)
UPDATE nodes n SET state = 'gone', beat = n.beat + 1
FROM x WHERE n.name = ANY(ARRAY(SELECT name FROM o)) AND n.name = x.name AND n.beat = x.beat
  AND n.session = x.session AND n.state = x.state
  AND EXISTS (SELECT 1 FROM leases WHERE name = $2 AND owner = $3 AND term = $4 FOR SHARE) RETURNING n.name;

-- open_lines --
-- Locked in order, as beats and claims lock them. Not of one that was evicted, by whatever name it comes.
WITH x AS (
  SELECT t.*, EXISTS (SELECT 1 FROM nodes e WHERE e.identity = t.identity AND e.evicted_at IS NOT NULL) AS is_evicted
  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS t(name, identity, via, line)
), o AS MATERIALIZED (
  SELECT name, evicted_at FROM nodes WHERE name = ANY($1::text[]) ORDER BY name FOR NO KEY UPDATE
), u AS (
  UPDATE nodes n SET via = x.via, line = x.line, session = n.session + 1
  FROM x WHERE n.name = ANY(ARRAY(SELECT name FROM o)) AND n.name = x.name AND (n.identity = x.identity OR n.state = 'gone')
    AND n.evicted_at IS NULL AND NOT x.is_evicted
  RETURNING n.name, n.session
)
SELECT name, session FROM u
UNION ALL SELECT name, -1 FROM x WHERE is_evicted
UNION ALL SELECT o.name, CASE WHEN evicted_at IS NOT NULL THEN -1 END FROM o JOIN x USING (name)
WHERE o.name NOT IN (SELECT name FROM u) AND NOT is_evicted;

-- revoke_tokens_of --
-- Those that are good for this node alone.
UPDATE tokens SET revoked_at = coalesce(revoked_at, $2)
WHERE scope IN ('agent', 'join') AND CAST(bound AS json) ->> 'node' = $1;

-- beat --
-- Many at once; their rows are locked in order, as claims lock them. Rows of (number, 0, beat, wanted, [count, digest])
-- for each that beat, (number, run, fence) for what it shall stop, (number, -1, session, state) for those that could not.
WITH x AS MATERIALIZED (
  SELECT * FROM unnest($1::text[], $2::int[], $3::bigint[], $4::bool[], $6::text[])
    WITH ORDINALITY AS t(name, busy, session, tells, free, number)
), o AS MATERIALIZED (
  SELECT name FROM nodes WHERE name = ANY($1::text[]) ORDER BY name FOR NO KEY UPDATE
), b AS (
  UPDATE nodes n SET beat = n.beat + 1, busy = x.busy, free = COALESCE(x.free, n.free),
    heartbeat_at = COALESCE($5::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
  FROM x WHERE n.name = ANY(ARRAY(SELECT name FROM o)) AND n.name = x.name AND n.state IN ('live', 'draining')
    AND (x.session IS NULL OR n.session = x.session)
  RETURNING x.number, n.name, n.beat, n.wanted
), h AS MATERIALIZED (
  SELECT node, ARRAY[count(*), sum({digest})::bigint] AS held FROM live
  WHERE state = {running} AND node = ANY(ARRAY(SELECT name FROM x WHERE tells)) GROUP BY node
)
SELECT b.number, 0::bigint, b.beat, b.wanted, CASE WHEN x.tells THEN COALESCE(h.held, ARRAY[0, 0]::bigint[]) END
FROM b JOIN x USING (number) LEFT JOIN h ON h.node = b.name
UNION ALL SELECT x.number, l.id, l.fence, NULL, NULL FROM live l JOIN x ON x.name = l.node
WHERE l.cancel AND l.node = ANY($1::text[]) AND l.state = {running}
UNION ALL SELECT x.number, -1, n.session, n.state, NULL FROM nodes n JOIN x USING (name)
WHERE n.name = ANY($1::text[]) AND x.number NOT IN (SELECT number FROM b);

-- beat_alone --
-- Without a look at the live runs, for when they are locked.
WITH x AS MATERIALIZED (
  SELECT * FROM unnest($1::text[], $2::int[], $3::bigint[]) WITH ORDINALITY AS t(name, busy, session, number)
), o AS MATERIALIZED (
  SELECT name FROM nodes WHERE name = ANY($1::text[]) ORDER BY name FOR NO KEY UPDATE
), b AS (
  UPDATE nodes n SET beat = n.beat + 1, busy = x.busy,
    heartbeat_at = COALESCE($4::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
  FROM x WHERE n.name = ANY(ARRAY(SELECT name FROM o)) AND n.name = x.name AND n.state IN ('live', 'draining')
    AND (x.session IS NULL OR n.session = x.session)
  RETURNING x.number, n.beat, n.wanted
)
SELECT number, 0::bigint, beat, wanted, NULL::bigint[] FROM b
UNION ALL SELECT x.number, -1, n.session, n.state, NULL FROM nodes n JOIN x USING (name)
WHERE n.name = ANY($1::text[]) AND x.number NOT IN (SELECT number FROM b);

-- assign_segments [beat] --
-- Only while the leader's lease is held under its term.
INSERT INTO segments (segment, owner, term, since_at)
SELECT m.segment, m.owner, 1, COALESCE($6::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
FROM unnest($1::smallint[], $2::text[]) AS m(segment, owner)
WHERE EXISTS (SELECT 1 FROM leases WHERE name = $3 AND owner = $4 AND term = $5 FOR SHARE)
ON CONFLICT (segment) DO UPDATE SET owner = excluded.owner, term = segments.term + 1, since_at = excluded.since_at
RETURNING segment;
