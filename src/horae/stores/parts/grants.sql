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
