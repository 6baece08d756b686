-- add_token --
INSERT INTO tokens (name, scope, owner, hash, created_at, expires_at, revoked_at, parent_id, bound, org, role, user_id,
  renewed_at)
VALUES ($1, $2, $3, $4, $5, $6, NULL, $7, $8, $9, $10, $11, $12)
RETURNING id, name, scope, owner, hash, created_at, expires_at, revoked_at, parent_id, bound, org, role, user_id,
  used_at, next_hash, renewed_at;

-- get_token --
-- It is revoked with those by which it was made: found when it is read, so that none that is made meanwhile escapes.
WITH RECURSIVE line (id, parent_id, revoked_at) AS (
  SELECT id, parent_id, revoked_at FROM tokens WHERE id = $1
  UNION ALL
  SELECT t.id, t.parent_id, t.revoked_at FROM tokens t JOIN line l ON t.id = l.parent_id
)
SELECT id, name, scope, owner, hash, created_at, expires_at,
  coalesce(revoked_at, (SELECT min(revoked_at) FROM line)), parent_id, bound, org, role, user_id, used_at,
  next_hash, renewed_at
FROM tokens WHERE id = $1;

-- load_tokens --
WITH RECURSIVE line (of, parent_id, revoked_at) AS (
  SELECT id, parent_id, revoked_at FROM tokens WHERE id IN {ids}
  UNION ALL
  SELECT l.of, t.parent_id, t.revoked_at FROM tokens t JOIN line l ON t.id = l.parent_id
)
SELECT id, name, scope, owner, hash, created_at, expires_at,
  coalesce(revoked_at, (SELECT min(l.revoked_at) FROM line l WHERE l.of = tokens.id)), parent_id, bound, org, role,
  user_id, used_at, next_hash, renewed_at
FROM tokens WHERE id IN {ids};

-- list_tokens --
WITH RECURSIVE line (id, revoked_at) AS (
  SELECT id, revoked_at FROM tokens WHERE parent_id IS NULL
  UNION ALL
  SELECT t.id, coalesce(t.revoked_at, l.revoked_at) FROM tokens t JOIN line l ON t.parent_id = l.id
)
SELECT t.id, t.name, t.scope, t.owner, t.hash, t.created_at, t.expires_at, l.revoked_at, t.parent_id, t.bound, t.org,
  t.role, t.user_id, t.used_at, t.next_hash, t.renewed_at
FROM tokens t JOIN line l ON l.id = t.id ORDER BY t.id DESC;

-- revoke_token --
-- The first time stands, however often it is said.
UPDATE tokens SET revoked_at = coalesce(revoked_at, $2) WHERE id = $1
RETURNING id, name, scope, owner, hash, created_at, expires_at, revoked_at, parent_id, bound, org, role, user_id,
  used_at, next_hash, renewed_at;

-- use_token --
-- Its row is locked: of two who come with it at once, the second finds what the first was given.
UPDATE tokens SET used_at = coalesce(used_at, $2) WHERE id = $1 AND scope = 'join' AND revoked_at IS NULL RETURNING id;

-- find_credential --
SELECT id, name, scope, owner, hash, created_at, expires_at, revoked_at, parent_id, bound, org, role, user_id,
  used_at, next_hash, renewed_at
FROM tokens WHERE parent_id = $1 AND scope = 'agent';

-- renew_token --
UPDATE tokens SET next_hash = $2 WHERE id = $1 AND renewed_at IS NOT NULL AND revoked_at IS NULL RETURNING id;

-- confirm_token --
-- Who has the new secret has used it: from here on the old one is nothing.
UPDATE tokens SET hash = next_hash, next_hash = NULL, renewed_at = $3 WHERE id = $1 AND next_hash = $2 RETURNING id;
