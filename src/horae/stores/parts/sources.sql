-- add_source --
INSERT INTO sources (org, owner, name, kind, config, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
RETURNING id, org, owner, name, kind, config, created_at, updated_at;

-- save_source --
UPDATE sources SET name = $3, kind = $4, config = $5, updated_at = $6 WHERE org = $1 AND id = $2 RETURNING id;

-- get_source --
SELECT id, org, owner, name, kind, config, created_at, updated_at FROM sources WHERE org = $1 AND id = $2;

-- search_sources --
SELECT id, org, owner, name, kind, config, created_at, updated_at FROM sources WHERE {where};

-- delete_source --
DELETE FROM sources WHERE org = $1 AND id = $2 RETURNING id;

-- load_sources [claim] --
SELECT id, org, owner, name, kind, config, created_at, updated_at FROM sources WHERE id IN {ids};
