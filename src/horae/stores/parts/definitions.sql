-- get_job --
-- Deleted ones too.
SELECT {job_columns} FROM jobs WHERE id = $1;

-- find_keys --
-- The live jobs with these keys.
SELECT {job_columns} FROM jobs WHERE key IN {names} AND org = $2 AND owner = $3 AND deleted_at IS NULL;

-- next_org --
SELECT min(org) FROM jobs WHERE org > $1 AND deleted_at IS NULL;

-- load_triggers --
-- Triggers, each with the document of its job to read the rest from.
SELECT d.trigger_id, d.next_at, d.last_at, d.job_id, j.version, j.triggers
FROM due d JOIN jobs j ON j.id = d.job_id WHERE d.trigger_id IN {ids} AND j.deleted_at IS NULL;

-- load_jobs [claim] --
SELECT {job_columns} FROM jobs WHERE id IN {ids};
