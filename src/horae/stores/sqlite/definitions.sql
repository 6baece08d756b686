-- due_of [claim] --
SELECT trigger_id, next_at, last_at FROM due WHERE trigger_id IN (SELECT value FROM json_each($1));

-- load_idempotency --
SELECT i.scope, i.key, i.digest, i.ids FROM json_each($1) AS k CROSS JOIN idempotency i
ON i.scope = k.value ->> 0 AND i.key = k.value ->> 1;

-- save_idempotency --
INSERT INTO idempotency (scope, key, digest, ids, created_at) VALUES {rows};

-- load_keys --
SELECT j.org, j.owner, j.key FROM json_each($1) AS k CROSS JOIN jobs j
ON j.org = k.value ->> 0 AND j.owner = k.value ->> 1 AND j.key = k.value ->> 2 AND j.deleted_at IS NULL;

-- insert_jobs --
INSERT INTO jobs ({job_columns}) VALUES {rows};

-- insert_due --
INSERT INTO due (trigger_id, job_id, next_at, version, segment) VALUES {rows};

-- lock_job --
SELECT version, triggers FROM jobs WHERE id = $1 AND deleted_at IS NULL;

-- lock_jobs --
SELECT id, version, triggers FROM jobs WHERE id IN (SELECT value FROM json_each($1)) AND deleted_at IS NULL;

-- save_jobs --
INSERT INTO jobs ({job_columns}) VALUES {rows}
ON CONFLICT (id) DO UPDATE SET org = excluded.org, owner = excluded.owner, name = excluded.name, key = excluded.key, kind = excluded.kind, spec
  = excluded.spec, policy = excluded.policy, segment = excluded.segment, paused = excluded.paused, annotations =
  excluded.annotations, version = excluded.version, created_at = excluded.created_at, updated_at =
  excluded.updated_at, deleted_at = excluded.deleted_at, triggers = excluded.triggers,
  part_of = excluded.part_of, followed = COALESCE(excluded.followed, jobs.followed);

-- save_due --
INSERT INTO due (trigger_id, job_id, next_at, version, segment) VALUES {rows}
ON CONFLICT (trigger_id) DO UPDATE
SET next_at = excluded.next_at, version = excluded.version, segment = excluded.segment;

-- drop_due --
DELETE FROM due WHERE trigger_id IN (SELECT value FROM json_each($1));

-- bury_job --
-- With the tasks that are written in it.
UPDATE jobs SET deleted_at = $2, updated_at = $2, version = version + 1
WHERE id = $1 OR (part_of = $1 AND deleted_at IS NULL);

-- live_of_job --
SELECT id FROM live WHERE gate = $1 OR (gate IS NULL AND job_id = $1);

-- waiting_live --
SELECT id FROM live WHERE job_id = $1 AND state <> {running} AND NOT (state = {blocked} AND (cancel OR reason = 'children'))
LIMIT $2;

-- barred_live --
SELECT id, parent_id IS NOT NULL FROM live WHERE (gate = $1 OR (gate IS NULL AND job_id = $1)) AND state <> {running}
  AND NOT (state = {blocked} AND (cancel OR reason = 'children'))
LIMIT $2;

-- bury_live --
-- From live to history unrun: cancelled, expired or failed while waiting.
INSERT INTO history ({history_columns})
SELECT id, job_id, trigger_id, due_at, created_at, NULL, $2, NULL, fence, NULL, $3, attempt, priority, lost, kind, $4,
  node, CASE WHEN $4 = 'start_deadline' AND reason = 'dependency' THEN 'its start deadline passed: it ' || COALESCE(note, 'waits')
    ELSE $5 END, NULL, NULL, data, parent_id, task, followed
FROM live WHERE id IN (SELECT value FROM json_each($1));

-- look_up_live --
SELECT id, state, node, CASE WHEN overlap >= 2 AND gate IS NOT NULL THEN job_id END, followed,
  state = {blocked} AND (cancel OR reason = 'children')
FROM live WHERE id IN (SELECT value FROM json_each($1));

-- ask_cancel --
UPDATE live SET cancel = 1, reason = $2, cancel_note = $3 WHERE id IN (SELECT value FROM json_each($1));
