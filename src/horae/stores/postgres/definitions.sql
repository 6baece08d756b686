-- find_jobs --
SELECT id FROM jobs WHERE id = ANY($1::bigint[]);

-- due_of [claim] --
SELECT trigger_id, next_at, last_at FROM due WHERE trigger_id = ANY($1::bigint[]);

-- allocate --
SELECT ARRAY(SELECT nextval('job_id') FROM generate_series(1, $1::int)),
       ARRAY(SELECT nextval('trigger_id') FROM generate_series(1, $2::int));

-- submit --
-- Jobs and their due rows in one statement.
WITH j AS (
  INSERT INTO jobs ({job_columns})
  SELECT * FROM unnest($1::bigint[], $2::int[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
    $8::text[], $9::smallint[], $10::bool[], $11::text[], $12::int[], $13::bigint[], $14::bigint[], $15::bigint[],
    $16::text[], $17::bigint[], $18::bool[])
), audited AS (
  INSERT INTO audit (at, {audit_columns})
  SELECT COALESCE($24::bigint, event_moment()), {audit_columns} FROM json_to_recordset($25::json) AS a({audit_types})
  WHERE pg_current_xact_id() IS NOT NULL
  ON CONFLICT (request_id, nth) DO NOTHING
)
INSERT INTO due (trigger_id, job_id, next_at, version, segment)
SELECT * FROM unnest($19::bigint[], $20::bigint[], $21::bigint[], $22::int[], $23::smallint[]);

-- load_idempotency --
SELECT i.scope, i.key, i.digest, i.ids
FROM idempotency i JOIN unnest($1::text[], $2::text[]) AS k(scope, key) USING (scope, key);

-- save_idempotency --
INSERT INTO idempotency (scope, key, digest, ids, created_at)
SELECT scope, key, digest, ids, $5 FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
  AS k(scope, key, digest, ids);

-- load_keys --
SELECT j.org, j.owner, j.key
FROM jobs j JOIN unnest($1::int[], $2::text[], $3::text[]) AS k(org, owner, key) USING (org, owner, key)
WHERE j.deleted_at IS NULL;

-- lock_job --
SELECT version, triggers FROM jobs WHERE id = $1 AND deleted_at IS NULL FOR UPDATE;

-- lock_jobs --
SELECT id, version, triggers FROM jobs WHERE id = ANY($1::bigint[]) AND deleted_at IS NULL ORDER BY id FOR UPDATE;

-- lock_due --
SELECT trigger_id, last_at FROM due WHERE trigger_id = ANY($1::bigint[]) ORDER BY trigger_id FOR UPDATE;

-- save_jobs --
-- Jobs and the due rows of their triggers in one statement.
WITH j AS (
  UPDATE jobs SET org = n.org, owner = n.owner, name = n.name, key = n.key, kind = n.kind, spec = n.spec, policy = n.policy,
  segment = n.segment, paused = n.paused, annotations = n.annotations, version = n.version, created_at =
  n.created_at, updated_at = n.updated_at, deleted_at = n.deleted_at, triggers = n.triggers,
  part_of = n.part_of, followed = COALESCE(n.followed, jobs.followed)
  FROM unnest($1::bigint[], $2::int[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
    $8::text[], $9::smallint[], $10::bool[], $11::text[], $12::int[], $13::bigint[], $14::bigint[], $15::bigint[],
    $16::text[], $17::bigint[], $18::bool[]) AS n({job_columns})
  WHERE jobs.id = n.id
)
INSERT INTO due (trigger_id, job_id, next_at, version, segment)
SELECT * FROM unnest($19::bigint[], $20::bigint[], $21::bigint[], $22::int[], $23::smallint[])
ON CONFLICT (trigger_id) DO UPDATE
SET next_at = excluded.next_at, version = excluded.version, segment = excluded.segment;

-- drop_due --
DELETE FROM due WHERE trigger_id = ANY($1::bigint[]);

-- bury_job --
-- With the tasks that are written in it.
UPDATE jobs SET deleted_at = $2, updated_at = $2, version = version + 1
WHERE id = $1 OR (part_of = $1 AND deleted_at IS NULL);

-- live_of_job --
-- Locked, so that none is claimed or ended before the next statement sees to it.
SELECT id FROM live WHERE gate = $1 OR (gate IS NULL AND job_id = $1) ORDER BY id FOR UPDATE;

-- waiting_live --
SELECT id FROM live WHERE job_id = $1 AND state <> {running} AND NOT (state = {blocked} AND (cancel OR reason = 'children'))
LIMIT $2 FOR UPDATE;

-- end_barred --
WITH w AS (
  DELETE FROM live WHERE id = ANY(ARRAY(
    SELECT id FROM live WHERE (gate = $1 OR (gate IS NULL AND job_id = $1)) AND state <> {running}
      AND NOT (state = {blocked} AND (cancel OR reason = 'children'))
    LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING *
)
INSERT INTO history ({history_columns})
SELECT id, job_id, trigger_id, due_at, created_at, NULL, $3, NULL, fence, NULL,
  CASE WHEN parent_id IS NULL THEN {skipped} ELSE {failed} END, attempt, priority, lost, kind, 'owner', node, $4::text, NULL,
  NULL, data, parent_id, task, followed
FROM w RETURNING id;

-- cancel --
-- Who waits for its children is marked, and ends when the last of them has: see ports.store.flows.
WITH w AS (
  DELETE FROM live WHERE id = ANY($1::bigint[]) AND (state = {queued} OR state = {blocked} AND reason <> 'children' AND NOT cancel)
  RETURNING *
), h AS (
  INSERT INTO history ({history_columns})
  SELECT id, job_id, trigger_id, due_at, created_at, NULL, $3, NULL, fence, NULL, {cancelled}, attempt, priority, lost, kind,
    $2::text, node, $4::text, NULL, NULL, data, parent_id, task, followed
  FROM w
), a AS (
  UPDATE live SET cancel = true, reason = $2::text, cancel_note = NULLIF($4::text, '') WHERE id = ANY($1::bigint[]) AND +state = {running} RETURNING id, node
), m AS (
  UPDATE live SET cancel = true, reason = $2::text, cancel_note = NULLIF($4::text, ''), eligible_at = NULL
  WHERE id = ANY($1::bigint[]) AND state = {blocked} AND (reason = 'children' OR cancel) RETURNING id, job_id
), e AS (
  INSERT INTO endings (kind, run_id, job_id, parent_id, name) SELECT 'cancel', id, job_id, id, $2::text FROM m
)
SELECT id, NULL AS node, CASE WHEN overlap >= 2 AND gate IS NOT NULL THEN job_id END, followed, false FROM w
UNION ALL SELECT id, node, NULL, NULL, false FROM a
UNION ALL SELECT id, NULL, NULL, NULL, true FROM m;
