-- has_handed [fire] --
SELECT EXISTS (SELECT 1 FROM inbox WHERE id > $1 ORDER BY id LIMIT 1)
  OR EXISTS (SELECT 1 FROM inbox WHERE id = ANY($2::bigint[]));

-- take_handed --
WITH late AS (
  SELECT ctid FROM inbox WHERE id = ANY($2::bigint[]) FOR UPDATE SKIP LOCKED
), next AS (
  SELECT ctid FROM inbox WHERE id > $1 ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED
)
DELETE FROM inbox WHERE ctid = ANY (ARRAY(SELECT ctid FROM late UNION ALL SELECT ctid FROM next))
RETURNING id, made_at, run_at, org, priority, role, owner, job, key, data;

-- load_targets --
SELECT id, org, owner, key, kind, paused, policy, annotations, CASE WHEN policy LIKE '%"data.%' THEN spec END,
  followed FROM jobs
WHERE id = ANY($1::bigint[]) AND deleted_at IS NULL
UNION ALL
SELECT j.id, j.org, j.owner, j.key, j.kind, j.paused, j.policy, j.annotations, CASE WHEN j.policy LIKE '%"data.%' THEN j.spec END,
  j.followed
FROM unnest($2::int[], $3::text[], $4::text[]) AS w(org, owner, key) JOIN jobs j USING (org, owner, key)
WHERE j.key IS NOT NULL AND j.deleted_at IS NULL;

-- refuse_handed --
INSERT INTO inbox_refused (id, made_at, run_at, org, priority, role, owner, job, key, data, code, message, refused_at)
SELECT t.*, $13 FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::int[], $5::smallint[], $6::text[], $7::text[],
  $8::text[], $9::text[], $10::text[], $11::text[], $12::text[]) AS t;

-- readmit --
WITH back AS (
  DELETE FROM inbox_refused r WHERE r.code = 'E_PAUSED' AND NOT EXISTS (
    SELECT 1 FROM jobs j WHERE j.paused AND j.deleted_at IS NULL AND j.org = r.org AND j.owner = r.owner
      AND (j.key = r.job OR j.id::text = r.job))
  RETURNING id, made_at, run_at, org, priority, role, owner, job, key, data
)
INSERT INTO inbox (id, made_at, run_at, org, priority, role, owner, job, key, data) SELECT * FROM back RETURNING 1;

-- inbox_level --
-- Of very many, some: a number beyond a hundred thousand says as much. The role of Horae itself needs no grant, so it is
-- also asked whether there ever was a row.
SELECT count(*), min(made_at), (SELECT count(*) FROM inbox_refused),
  EXISTS (SELECT 1 FROM inbox_grants) OR (SELECT is_called FROM inbox_id_seq),
  COALESCE($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
FROM (SELECT made_at FROM inbox ORDER BY id LIMIT 100000) AS waiting;

-- grant_inbox --
INSERT INTO inbox_grants (role, org, owner) VALUES ($1, $2, $3)
ON CONFLICT (role) DO UPDATE SET org = excluded.org, owner = excluded.owner;

-- role_rights --
-- What lets a role call the functions, and what takes it away again; no row where there is no such role.
SELECT format('GRANT EXECUTE ON FUNCTION horae_enqueue, horae_wake TO %I', rolname),
  format('REVOKE EXECUTE ON FUNCTION horae_enqueue, horae_wake FROM %I', rolname),
  CASE WHEN NOT has_schema_privilege(rolname, current_schema(), 'USAGE')
    THEN format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), rolname) END
FROM pg_roles WHERE rolname = $1;

-- may_hand_over --
-- Who owns the functions gives the right to call them; of whoever does not, the database only warns.
SELECT has_function_privilege($1::name, 'horae_enqueue(text, jsonb, text, integer, timestamptz)', 'EXECUTE');

-- revoke_inbox --
DELETE FROM inbox_grants WHERE role = $1 RETURNING 1;

-- list_inbox_grants --
SELECT role, org, owner FROM inbox_grants ORDER BY role;

-- list_refused --
SELECT id, made_at, run_at, org, priority, role, owner, job, key, data, code, message FROM inbox_refused
ORDER BY id DESC LIMIT $1;

-- retry_refused --
WITH back AS (
  DELETE FROM inbox_refused WHERE $1::bigint[] IS NULL OR id = ANY($1)
  RETURNING id, made_at, run_at, org, priority, role, owner, job, key, data
)
INSERT INTO inbox (id, made_at, run_at, org, priority, role, owner, job, key, data) SELECT * FROM back RETURNING id;

-- drop_refused --
DELETE FROM inbox_refused WHERE refused_at < $1 RETURNING 1;
