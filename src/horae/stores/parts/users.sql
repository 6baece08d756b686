-- add_user --
INSERT INTO users (name, kind, email, password, created_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING RETURNING id;

-- add_identity --
INSERT INTO identities (user_id, issuer, subject) VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING RETURNING user_id;

-- drop_user --
DELETE FROM users WHERE id = $1;

-- get_user --
SELECT u.id, u.name, u.kind, u.created_at, u.email, u.password, u.disabled_at, m.org, m.role, m.added_at
FROM users u LEFT JOIN members m ON m.user_id = u.id WHERE u.id = $1;

-- find_user --
SELECT u.id, u.name, u.kind, u.created_at, u.email, u.password, u.disabled_at, m.org, m.role, m.added_at
FROM users u LEFT JOIN members m ON m.user_id = u.id WHERE u.name = $1;

-- find_identity --
SELECT u.id, u.name, u.kind, u.created_at, u.email, u.password, u.disabled_at, m.org, m.role, m.added_at
FROM identities i JOIN users u ON u.id = i.user_id LEFT JOIN members m ON m.user_id = u.id
WHERE i.issuer = $1 AND i.subject = $2;

-- list_users --
SELECT u.id, u.name, u.kind, u.created_at, u.email, u.password, u.disabled_at, m.org, m.role, m.added_at
FROM (SELECT * FROM users WHERE name > $1 ORDER BY name LIMIT $2) u LEFT JOIN members m ON m.user_id = u.id
ORDER BY u.name;

-- disable_user --
UPDATE users SET disabled_at = coalesce(disabled_at, $2) WHERE id = $1;

-- enable_user --
UPDATE users SET disabled_at = NULL WHERE id = $1;

-- set_email --
UPDATE users SET email = $2 WHERE id = $1;

-- set_invite --
UPDATE users SET invite_hash = $2, invite_until = $3 WHERE id = $1;

-- get_invite --
SELECT invite_hash, invite_until FROM users WHERE id = $1 AND invite_hash IS NOT NULL;

-- use_invite --
UPDATE users SET password = $3, invite_hash = NULL, invite_until = NULL
WHERE id = $1 AND invite_hash = $2 AND invite_until > $4 RETURNING id;

-- set_password --
UPDATE users SET password = $3 WHERE id = $1 AND coalesce(password, '') = coalesce($2, '') RETURNING id;

-- has_person --
SELECT 1 FROM users u JOIN members m ON m.user_id = u.id WHERE u.disabled_at IS NULL AND u.kind = 'person' LIMIT 1;

-- is_owner_of_tokens --
SELECT 1 FROM tokens WHERE owner = $1 AND user_id IS NULL LIMIT 1;

-- add_organisation --
-- Not below any that something belongs to already: numbers were given by hand before there were names.
INSERT INTO organisations (id, created_at, name)
SELECT 1 + max(m.id), $2, $1 FROM (
  SELECT max(id) AS id FROM organisations UNION ALL SELECT coalesce(max(org), 1) FROM tokens
  UNION ALL SELECT coalesce(max(org), 1) FROM jobs
) m
HAVING NOT EXISTS (SELECT 1 FROM organisations WHERE name = $1)
ON CONFLICT DO NOTHING RETURNING id, name, created_at;

-- name_organisation --
INSERT INTO organisations (id, created_at, name) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING;

-- list_organisations --
SELECT id, name, created_at FROM organisations WHERE id > 0 ORDER BY id;

-- put_member --
-- Whoever stays a member is one since then.
INSERT INTO members (org, user_id, role, source, added_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (user_id, org, source) DO UPDATE SET role = excluded.role;

-- hold_organisation --
-- Whoever takes members out of one waits for each other here.
UPDATE organisations SET name = name WHERE id = $1;

-- has_other_admin --
SELECT 1 FROM members m JOIN users u ON u.id = m.user_id
WHERE m.org = $1 AND m.user_id <> $2 AND m.role = 'admin' AND u.disabled_at IS NULL LIMIT 1;

-- is_admin --
SELECT 1 FROM members WHERE org = $1 AND user_id = $2 AND role = 'admin' LIMIT 1;

-- drop_member --
DELETE FROM members WHERE org = $1 AND user_id = $2;

-- members_of --
SELECT org FROM members WHERE user_id = $1 AND source = $2;

-- drop_member_of --
DELETE FROM members WHERE user_id = $1 AND source = $2 AND org = $3;

-- list_members --
SELECT m.org, m.user_id, u.name, m.role, m.source FROM members m JOIN users u ON u.id = m.user_id
WHERE m.org = $1 ORDER BY u.name, m.source;
