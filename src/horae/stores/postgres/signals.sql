-- signal --
-- Each run is told one thing ($3, the moment, $4), if its name was not answered before, and goes on if it waits for that.
WITH c AS MATERIALIZED (
  SELECT COALESCE($9::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), x AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
    AS t(id, name, head, rest, scope, key, digest)
), l AS MATERIALIZED (
  SELECT id, answers, state, reason, awaits FROM live WHERE id = ANY($1::bigint[]) ORDER BY id FOR UPDATE
), j AS MATERIALIZED (
  SELECT x.*, l.answers::jsonb -> x.name AS said, l.state = {blocked} AND l.reason = 'signal' AND l.awaits = x.name AS is_due,
    COALESCE(octet_length(l.answers), 2) + octet_length(x.head) + octet_length(x.rest) + 20 <= $8 AS fits
  FROM l JOIN x USING (id)
), u AS (
  UPDATE live r SET
    answers = COALESCE(left(r.answers, -1) || ',', '{') || j.head || (SELECT now FROM c)::text || j.rest || '}',
    state = CASE WHEN j.is_due THEN {waiting_state} ELSE state END,
    reason = CASE WHEN j.is_due THEN {waiting_reason} ELSE reason END,
    attempt = attempt - CASE WHEN j.is_due THEN 1 ELSE 0 END,
    eligible_at = CASE WHEN j.is_due THEN NULL ELSE eligible_at END,
    awaits = CASE WHEN j.is_due THEN NULL ELSE awaits END, note = CASE WHEN j.is_due THEN NULL ELSE note END
  FROM j WHERE r.id = ANY($1::bigint[]) AND r.id = j.id AND j.said IS NULL AND j.fits
  RETURNING r.id
), n AS (
  INSERT INTO idempotency (scope, key, digest, ids, created_at)
  SELECT scope, key, digest, '[' || id || ']', (SELECT now FROM c) FROM u JOIN x USING (id) WHERE key IS NOT NULL
  ON CONFLICT DO NOTHING
)
SELECT j.id, j.said -> 'late' IS NOT NULL, j.said IS NOT NULL, u.id IS NOT NULL, j.is_due
FROM j LEFT JOIN u USING (id);

-- lock_callers --
SELECT id, answers, awaits, cancel, state = {blocked}, CASE WHEN overlap >= 2 AND gate IS NOT NULL THEN job_id END, followed,
  EXISTS (SELECT 1 FROM live c WHERE c.parent_id = live.id)
FROM live WHERE id = ANY($1::bigint[]) ORDER BY id FOR UPDATE;
