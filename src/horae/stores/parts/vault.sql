-- keep_setting --
-- An update that changes nothing, because only then is the row that is kept returned.
INSERT INTO settings (name, value) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET value = settings.value RETURNING value;

-- replace_setting --
UPDATE settings SET value = $3 WHERE name = $1 AND value = $2 AND NOT EXISTS (
  SELECT 1 FROM nodes WHERE state <> 'gone' AND via = '' AND heartbeat_at > $4) RETURNING name;

-- get_setting --
SELECT value FROM settings WHERE name = $1;

-- put_secret [claim] --
INSERT INTO secrets (org, name, version, created_at, updated_at, sealed) VALUES ($1, $2, 1, $4, $4, $3)
ON CONFLICT (org, name) DO UPDATE
SET version = secrets.version + 1, updated_at = excluded.updated_at, sealed = excluded.sealed
RETURNING version;

-- list_secrets [claim] --
SELECT name, version, created_at, updated_at FROM secrets WHERE org = $1 ORDER BY name;

-- list_sealed [claim] --
SELECT org, name, sealed FROM secrets ORDER BY org, name;

-- delete_secret [claim] --
DELETE FROM secrets WHERE org = $1 AND name = $2 RETURNING name;

-- sealable_job --
-- Handlers hold nothing of the kind.
SELECT id, kind, spec FROM jobs WHERE id > $1 AND kind <> 'python' ORDER BY id LIMIT $2;

-- sealable_trigger --
-- Webhooks hold secrets; other triggers have none.
SELECT id, kind, triggers FROM jobs WHERE id > $1 AND triggers LIKE '%"sealed.v%' ORDER BY id LIMIT $2;

-- sealable_source --
SELECT id, org, config FROM sources WHERE id > $1 ORDER BY id LIMIT $2;

-- sealable_setting --
SELECT 0, name, value FROM settings WHERE name IN ('sealed', 'callbacks');

-- reseal_job --
UPDATE jobs SET spec = $4 WHERE id = $1 AND kind = $2 AND spec = $3 RETURNING id;

-- reseal_trigger --
UPDATE jobs SET triggers = $4 WHERE id = $1 AND kind = $2 AND triggers = $3 RETURNING id;

-- reseal_source --
UPDATE sources SET config = $4 WHERE id = $1 AND CAST(org AS TEXT) = $2 AND config = $3 RETURNING id;

-- reseal_secret --
UPDATE secrets SET sealed = $4 WHERE org = $1 AND name = $2 AND sealed = $3 RETURNING org;

-- reseal_setting --
UPDATE settings SET value = $4 WHERE $1 = 0 AND name = $2 AND value = $3 RETURNING name;
