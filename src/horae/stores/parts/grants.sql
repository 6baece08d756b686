-- put_grant --
INSERT INTO grants (org, who, role, job_id, tag, queue, created_at, created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (org, who, coalesce(job_id, 0), coalesce(tag, ''), coalesce(queue, ''))
DO UPDATE SET role = excluded.role, created_at = excluded.created_at, created_by = excluded.created_by
RETURNING id, org, who, role, job_id, tag, queue, created_at, created_by;

-- page_grants --
SELECT id, org, who, role, job_id, tag, queue, created_at, created_by FROM grants
WHERE org = $1 AND id > $2 ORDER BY id LIMIT $3;

-- load_grants --
SELECT id, org, who, role, job_id, tag, queue, created_at, created_by FROM grants WHERE org = $1 AND who = $2 ORDER BY id;

-- drop_grant --
DELETE FROM grants WHERE org = $1 AND id = $2 RETURNING id, org, who, role, job_id, tag, queue, created_at, created_by;

-- load_owners [claim] --
SELECT u.id, u.name, u.kind, u.created_at, u.email, u.password, u.disabled_at, m.org, m.role, m.added_at
FROM users u LEFT JOIN members m ON m.user_id = u.id WHERE u.name IN {names} ORDER BY u.name;

-- list_short_owners --
-- From one owner to the next along the index of jobs, whatever there are of them.
WITH RECURSIVE orgs(org) AS (
  SELECT (SELECT min(j.org) FROM jobs j WHERE j.deleted_at IS NULL) WHERE EXISTS (SELECT 1 FROM users)
  UNION ALL
  SELECT (SELECT min(j.org) FROM jobs j WHERE j.deleted_at IS NULL AND j.org > o.org) FROM orgs o WHERE o.org IS NOT NULL
), owners(org, owner) AS (
  SELECT o.org, (SELECT min(j.owner) FROM jobs j WHERE j.deleted_at IS NULL AND j.org = o.org)
  FROM orgs o WHERE o.org IS NOT NULL
  UNION ALL
  SELECT w.org, (SELECT min(j.owner) FROM jobs j WHERE j.deleted_at IS NULL AND j.org = w.org AND j.owner > w.owner)
  FROM owners w WHERE w.owner IS NOT NULL
)
SELECT w.org, w.owner FROM owners w JOIN users u ON u.name = w.owner
WHERE u.disabled_at IS NOT NULL OR NOT EXISTS (
  SELECT 1 FROM members m WHERE m.user_id = u.id AND m.org IN (0, w.org)
    AND (m.role IN {names} OR '+' || m.role || '+' LIKE '%+' || CAST($2 AS text) || '+%'))
ORDER BY w.org, w.owner;

-- load_waiting_jobs --
SELECT j.id FROM jobs j WHERE j.org = $1 AND j.owner = $2 AND j.deleted_at IS NULL AND j.id > $3 AND EXISTS (
  SELECT 1 FROM live l WHERE (l.gate = j.id OR (l.gate IS NULL AND l.job_id = j.id)) AND l.state <> {running}
    AND NOT (l.state = {blocked} AND (l.cancel OR l.reason = 'children')))
ORDER BY j.id LIMIT $4;
