-- add_session --
INSERT INTO sessions (token_id, hash, created_at, expires_at, user_id, org, seen_at, proven_at, address, agent, issuer,
  refresh, refresh_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) RETURNING id;

-- drop_sessions --
DELETE FROM sessions WHERE expires_at <= $1;

-- get_session --
SELECT id, hash, created_at, expires_at, token_id, user_id, org, seen_at, proven_at, address, agent, issuer, refresh,
  refresh_at
FROM sessions WHERE id = $1;

-- list_sessions --
SELECT id, hash, created_at, expires_at, token_id, user_id, org, seen_at, proven_at, address, agent, issuer, refresh,
  refresh_at
FROM sessions WHERE user_id = $1 ORDER BY id DESC;

-- end_session --
DELETE FROM sessions WHERE id = $1;

-- end_sessions --
DELETE FROM sessions WHERE user_id = $1;

-- move_session --
UPDATE sessions SET org = $2 WHERE id = $1;

-- touch_session --
UPDATE sessions SET seen_at = $2 WHERE id = $1 AND seen_at < $2;

-- claim_refresh --
UPDATE sessions SET refresh_at = $3 WHERE id = $1 AND refresh_at = $2 RETURNING id;

-- renew_session --
UPDATE sessions SET refresh = $2, refresh_at = $3 WHERE id = $1;

-- add_device --
INSERT INTO devices (code, hash, created_at, expires_at, address, org, state) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT DO NOTHING RETURNING id, code, hash, created_at, expires_at, address, user_id, org, state;

-- drop_devices --
DELETE FROM devices WHERE expires_at <= $1;

-- get_device --
SELECT id, code, hash, created_at, expires_at, address, user_id, org, state FROM devices WHERE id = $1;

-- find_device --
SELECT id, code, hash, created_at, expires_at, address, user_id, org, state FROM devices WHERE code = $1;

-- decide_device --
UPDATE devices SET user_id = $2, org = $3, state = $4 WHERE id = $1 AND state = 'pending' RETURNING id;

-- use_device --
UPDATE devices SET state = 'used' WHERE id = $1 AND state = 'approved' RETURNING id;
