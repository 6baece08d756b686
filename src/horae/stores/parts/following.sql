-- load_following --
-- Jobs of an owner that come after others, or have triggers that listen to others (and may be some that do neither).
SELECT {job_columns} FROM jobs
WHERE org = $1 AND owner = $2 AND deleted_at IS NULL AND (policy LIKE '%"after":[%' OR triggers LIKE '%"on":_"%')
ORDER BY id;

-- load_node_listeners --
-- Of all owners, those that may listen to nodes; found among those above, by the same index.
SELECT {job_columns} FROM jobs
WHERE deleted_at IS NULL AND (policy LIKE '%"after":[%' OR triggers LIKE '%"on":_"%') AND triggers LIKE '%"on":_"node"%'
ORDER BY id;

-- mark_followed --
-- Those that did not know it. Their versions move on: what was looked up before makes no more runs.
UPDATE jobs SET followed = {true}, version = version + 1 WHERE id IN {ids} AND followed IS NULL AND deleted_at IS NULL
RETURNING id, triggers;

-- bump_due --
UPDATE due SET version = version + 1 WHERE trigger_id IN {ids};

-- follow_live --
UPDATE live SET followed = {true} WHERE (gate IN {ids} OR (gate IS NULL AND job_id IN {ids})) AND parent_id IS NULL;

-- note_changed --
INSERT INTO endings (kind, job_id) SELECT 'job', id FROM jobs j WHERE id IN {ids} AND (followed OR EXISTS (
  SELECT 1 FROM live WHERE job_id = j.id AND state = {blocked} AND depends));
