-- take_endings --
DELETE FROM endings WHERE id IN (SELECT value FROM json_each($1)) RETURNING id, kind, run_id;

-- lock_making --
-- There is one writer: nobody else makes any meanwhile.
SELECT $1;

-- lock_waiting --
SELECT id, job_id, trigger_id, due_at, data, note FROM live
WHERE state = {blocked} AND reason = 'dependency'
  AND (id IN (SELECT value FROM json_each($1)) OR job_id IN (SELECT value FROM json_each($2)))
ORDER BY id;
