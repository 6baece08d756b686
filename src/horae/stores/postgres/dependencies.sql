-- take_endings --
-- What somebody else acts on at this moment is left to him.
DELETE FROM endings WHERE id = ANY(ARRAY(
  SELECT id FROM endings WHERE id = ANY($1::bigint[]) ORDER BY id FOR UPDATE SKIP LOCKED))
RETURNING id, kind, run_id;

-- lock_making --
SELECT id FROM jobs WHERE id = ANY($1::bigint[]) ORDER BY id FOR NO KEY UPDATE;

-- new_run_ids --
SELECT nextval('run_id') FROM generate_series(1, $1::int);

-- lock_waiting --
SELECT id, job_id, trigger_id, due_at, data, note FROM live
WHERE state = {blocked} AND reason = 'dependency' AND (id = ANY($1::bigint[]) OR job_id = ANY($2::bigint[]))
ORDER BY id FOR UPDATE;
