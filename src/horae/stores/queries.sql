-- get_job --
-- Deleted ones too.
SELECT {job_columns} FROM jobs WHERE id = $1;

-- find_key --
-- The live job with a key.
SELECT {job_columns} FROM jobs WHERE org = $1 AND owner = $2 AND key = $3 AND deleted_at IS NULL;

-- get_trigger --
-- A trigger, with the document of its job to read the rest from.
SELECT d.trigger_id, d.next_at, d.last_at, d.job_id, j.version, j.triggers
FROM due d JOIN jobs j ON j.id = d.job_id WHERE d.trigger_id = $1 AND j.deleted_at IS NULL;

-- list_triggers --
SELECT d.trigger_id, d.next_at, d.last_at, d.job_id, j.version, j.triggers
FROM due d JOIN jobs j ON j.id = d.job_id WHERE j.deleted_at IS NULL AND {where} ORDER BY d.trigger_id;

-- get_run --
SELECT {run_columns_live} FROM live WHERE id = $1
UNION ALL
SELECT {run_columns_history} FROM history WHERE id = $1;

-- list_runs --
-- Live and past together, newest first; each half is cut before they are joined.
SELECT * FROM (SELECT {run_columns_live} FROM live WHERE {where} ORDER BY id DESC LIMIT {limit}) AS present
UNION ALL
SELECT * FROM (SELECT {run_columns_history} FROM history WHERE {where} ORDER BY id DESC LIMIT {limit}) AS past
ORDER BY 1 DESC LIMIT {limit};

-- list_attempts --
SELECT run_id, attempt, fence, node, state, reason, started_at, finished_at, exit_code, message, output
FROM attempts WHERE run_id = $1 ORDER BY fence;

-- first_run --
SELECT min(id) FROM (SELECT min(id) AS id FROM live UNION ALL SELECT min(id) FROM history) AS first;

-- outdated --
-- Oldest ids first, by the primary key: a run that took days may keep its record a little longer, and no index of ends
-- is paid for by every run.
SELECT id, attempt, fence, output IS NOT NULL OR reason = 'lost' FROM (
  SELECT id, attempt, fence, output, reason, finished_at FROM history ORDER BY id LIMIT $2) AS oldest
WHERE finished_at < $1;

-- purge_keys --
DELETE FROM idempotency WHERE (scope, key) IN (
  SELECT scope, key FROM idempotency WHERE created_at < $1 ORDER BY created_at LIMIT $2)
RETURNING 1;

-- load_running --
SELECT id, fence FROM live WHERE state = 1 AND node = $1;

-- count_live --
SELECT state, count(*) FROM live GROUP BY state;

-- register_node --
INSERT INTO nodes (name, roles, kinds, labels, version, address, started_at, heartbeat_at, slots, grpc, via,
  identity, state, beat, busy)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 'live', 0, 0)
ON CONFLICT (name) DO UPDATE SET roles = excluded.roles, kinds = excluded.kinds, labels = excluded.labels,
  version = excluded.version, address = excluded.address, started_at = excluded.started_at,
  heartbeat_at = excluded.heartbeat_at, slots = excluded.slots, grpc = excluded.grpc, via = excluded.via,
  identity = excluded.identity, state = 'live', beat = nodes.beat + 1, busy = 0;

-- want_node --
UPDATE nodes SET wanted = $2 WHERE name = $1 RETURNING name;

-- retire_node --
UPDATE nodes SET state = $2, beat = beat + 1 WHERE name = $1;

-- list_nodes --
SELECT name, roles, kinds, labels, version, address, state, started_at, heartbeat_at, beat, slots, busy, grpc, via,
  wanted, identity
FROM nodes ORDER BY name;

-- route_node --
UPDATE nodes SET via = $3 WHERE name = $1 AND identity = $2 AND state <> 'gone' RETURNING name;

-- keep_setting --
-- An update that changes nothing, because only then is the row that is kept returned.
INSERT INTO settings (name, value) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET value = settings.value RETURNING value;

-- get_setting --
SELECT value FROM settings WHERE name = $1;

-- get_lease --
SELECT name, owner, term, beat FROM leases WHERE name = $1;

-- make_lease --
INSERT INTO leases (name, owner, term, beat) VALUES ($1, $2, 1, 0)
ON CONFLICT (name) DO NOTHING RETURNING name, owner, term, beat;

-- take_lease --
-- Only from the state the candidate has seen: a renewal in between moves the beat and wins.
UPDATE leases SET owner = $2, term = term + 1, beat = 0
WHERE name = $1 AND owner = $3 AND term = $4 AND beat = $5 RETURNING name, owner, term, beat;

-- renew_lease --
UPDATE leases SET beat = beat + 1 WHERE name = $1 AND owner = $2 AND term = $3 RETURNING name, owner, term, beat;

-- resign_lease --
-- An empty owner may be replaced at once.
UPDATE leases SET owner = '', beat = beat + 1 WHERE name = $1 AND owner = $2 AND term = $3;

-- load_segments --
SELECT segment, owner, term FROM segments ORDER BY segment;

-- add_token --
INSERT INTO tokens (name, scope, owner, hash, created_at, expires_at, revoked_at) VALUES ($1, $2, $3, $4, $5, $6, NULL)
RETURNING id, name, scope, owner, hash, created_at, expires_at, revoked_at;

-- get_token --
SELECT id, name, scope, owner, hash, created_at, expires_at, revoked_at FROM tokens WHERE id = $1;

-- list_tokens --
SELECT id, name, scope, owner, hash, created_at, expires_at, revoked_at FROM tokens ORDER BY id DESC;

-- revoke_token --
-- The first time stands, however often it is said.
UPDATE tokens SET revoked_at = coalesce(revoked_at, $2) WHERE id = $1
RETURNING id, name, scope, owner, hash, created_at, expires_at, revoked_at;

-- load_jobs --
SELECT {job_columns} FROM jobs WHERE id IN {ids};

-- load_runs --
SELECT {run_columns_live} FROM live WHERE id IN {ids}
UNION ALL
SELECT {run_columns_history} FROM history WHERE id IN {ids};

-- newest_live --
SELECT {run_columns_live} FROM live WHERE id IN (SELECT max(id) FROM live WHERE job_id IN {ids} GROUP BY job_id);

-- newest_ended --
-- Of each job, the newest run that was neither skipped nor coalesced.
SELECT {run_columns_history} FROM history WHERE id IN (
  SELECT (SELECT h.id FROM history h WHERE h.job_id = j.value AND h.state < 14 ORDER BY h.id DESC LIMIT 1)
  FROM {ids} AS j);

-- search_runs --
-- Live and past together, each cut to what can be shown before they are joined.
SELECT * FROM (
  SELECT * FROM (
    SELECT * FROM (SELECT {run_columns_live} FROM live) AS r
    JOIN (SELECT id AS of_job, org AS job_org, name AS job_name FROM jobs) AS j ON of_job = job_id
    WHERE {where} ORDER BY {order} LIMIT {reach}) AS present
  UNION ALL
  SELECT * FROM (
    SELECT * FROM (SELECT {run_columns_history} FROM history) AS r
    JOIN (SELECT id AS of_job, org AS job_org, name AS job_name FROM jobs) AS j ON of_job = job_id
    WHERE {where} ORDER BY {order} LIMIT {reach}) AS past) AS found
ORDER BY {order} {cut};

-- count_runs --
SELECT
  (SELECT count(*) FROM live AS r JOIN (SELECT id AS of_job, org AS job_org, name AS job_name FROM jobs) AS j
   ON of_job = job_id WHERE {where})
  + (SELECT count(*) FROM history AS r JOIN (SELECT id AS of_job, org AS job_org, name AS job_name FROM jobs) AS j
   ON of_job = job_id WHERE {where});

-- list_lost --
SELECT run_id, attempt, fence, node, state, reason, started_at, finished_at, exit_code, message, output
FROM attempts WHERE reason = 'lost' ORDER BY finished_at DESC, run_id DESC LIMIT $1;

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
