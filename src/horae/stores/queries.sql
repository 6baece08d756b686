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

-- live_columns --
{run_columns_live};

-- history_run_columns --
{run_columns_history};

-- job_of_trigger --
SELECT job_id FROM due WHERE trigger_id = $1;

-- made_at --
SELECT created_at FROM live WHERE id = $1 UNION ALL SELECT created_at FROM history WHERE id = $1;

-- list_attempts --
SELECT run_id, attempt, fence, node, state, reason, started_at, finished_at, exit_code, message, output
FROM attempts WHERE run_id = $1 ORDER BY fence;

-- outdated --
-- Oldest ids first, by the primary key, past what is kept: no index of ends is paid for by every run.
SELECT id, attempt, fence, output IS NOT NULL OR reason = 'lost', finished_at < $1
FROM history WHERE id > $2 ORDER BY id LIMIT $3;

-- without_runs --
-- Those of these ids from which on there is no run, live or ended, for as many ids as a range has.
SELECT r.value FROM {ids} AS r
WHERE NOT EXISTS (SELECT 1 FROM live WHERE id >= r.value AND id < r.value + CAST($2 AS bigint))
  AND NOT EXISTS (SELECT 1 FROM history WHERE id >= r.value AND id < r.value + CAST($2 AS bigint));

-- drop_tombstones --
-- Of jobs deleted long ago of which nothing is left. Their ids are never given out again.
DELETE FROM jobs WHERE id IN (
  SELECT j.id FROM jobs j
  WHERE j.deleted_at < $1 AND j.deleted_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM history h WHERE h.job_id = j.id)
    AND NOT EXISTS (SELECT 1 FROM live l WHERE l.gate = j.id)
    AND NOT EXISTS (SELECT 1 FROM live l WHERE l.gate IS NULL AND l.job_id = j.id)
  ORDER BY j.deleted_at LIMIT $2)
RETURNING id;

-- parked --
-- Triggers without a next moment whose last one was long ago, by their ids.
SELECT d.trigger_id, j.triggers FROM due d JOIN jobs j ON j.id = d.job_id
WHERE d.next_at = 9223372036854775807 AND d.trigger_id > $2 AND d.last_at < $1 AND NOT j.paused
ORDER BY d.trigger_id LIMIT $3;

-- drop_parked --
DELETE FROM due WHERE trigger_id IN {ids} AND next_at = 9223372036854775807;

-- drop_nodes --
-- Names of nodes that were gone long ago; what they held was taken back when they went.
DELETE FROM nodes WHERE state = 'gone' AND heartbeat_at < $1
  AND NOT EXISTS (SELECT 1 FROM live l WHERE l.state = 1 AND l.node = nodes.name)
RETURNING name;

-- load_untold --
-- By the key, whatever else was ended meanwhile: each is told in its turn.
SELECT {run_columns_history} FROM history WHERE id IN (SELECT run_id FROM untold ORDER BY run_id LIMIT $1) ORDER BY id;

-- forget_untold --
DELETE FROM untold WHERE run_id IN {ids};

-- purge_keys --
DELETE FROM idempotency WHERE (scope, key) IN (
  SELECT scope, key FROM idempotency WHERE created_at < $1 ORDER BY created_at LIMIT $2)
RETURNING 1;

-- load_running --
SELECT id, fence FROM live WHERE state = 1 AND node = $1;

-- load_running_in_session --
-- No row at all: another session counts by now. A row of nothing: it holds nothing.
SELECT l.id, l.fence FROM nodes n LEFT JOIN live l ON l.node = n.name AND l.state = 1
WHERE n.name = $1 AND n.session = $2;

-- load_running_of --
SELECT node, id, fence FROM live WHERE state = 1 AND node IN {names};

-- count_live --
SELECT state, count(*) FROM live GROUP BY state;

-- register_node --
-- What the same line says again has been done: should a repeat come late, it supersedes nobody.
INSERT INTO nodes (name, roles, kinds, labels, version, address, started_at, heartbeat_at, slots, grpc, via,
  identity, holder, line, session, state, beat, busy)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, 1, 'live', 0, 0)
ON CONFLICT (name) DO UPDATE SET roles = excluded.roles, kinds = excluded.kinds, labels = excluded.labels,
  version = excluded.version, address = excluded.address, started_at = excluded.started_at,
  heartbeat_at = excluded.heartbeat_at, slots = excluded.slots, grpc = excluded.grpc, via = excluded.via,
  identity = excluded.identity, holder = excluded.holder, line = excluded.line,
  session = nodes.session + CASE WHEN nodes.line = $14 AND nodes.line <> '' AND nodes.session <> CAST($15 AS bigint)
    THEN 0 ELSE 1 END,
  state = 'live', beat = nodes.beat + 1, busy = 0, ailment = ''
WHERE CAST($15 AS bigint) IS NULL OR nodes.session = CAST($15 AS bigint) OR (nodes.line = $14 AND nodes.line <> '')
RETURNING session;

-- note_ailment --
UPDATE nodes SET ailment = $2 WHERE name = $1 AND (CAST($3 AS bigint) IS NULL OR session = CAST($3 AS bigint));

-- want_node --
UPDATE nodes SET wanted = $2 WHERE name = $1 RETURNING name;

-- retire_node --
UPDATE nodes SET state = $2, beat = beat + 1
WHERE name = $1 AND (CAST($3 AS bigint) IS NULL OR session = CAST($3 AS bigint)) RETURNING name;

-- list_nodes --
SELECT name, roles, kinds, labels, version, address, state, started_at, heartbeat_at, beat, slots, busy, grpc, via,
  wanted, identity, session, holder, ailment
FROM nodes ORDER BY name;

-- get_node --
SELECT name, roles, kinds, labels, version, address, state, started_at, heartbeat_at, beat, slots, busy, grpc, via,
  wanted, identity, session, holder, ailment
FROM nodes WHERE name = $1;

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

-- lend_runs --
-- A claim, for somebody who has not begun yet. A start deadline that has passed binds here too.
UPDATE live SET state = 1, attempt = attempt + 1, node = $2, reason = '', start_by = NULL, started_at = $3, phase = 0,
  fence = CASE WHEN fence + 1 > CAST($4 AS integer) THEN fence + 1 ELSE CAST($4 AS integer) END
WHERE id IN {ids} AND state = 0 AND (start_by IS NULL OR start_by > $3)
RETURNING id, job_id, fence, attempt;

-- note_loans --
-- An earlier loan of the same run may have left its row.
INSERT INTO loans (run_id, fence, worker, until_at)
SELECT id, fence, CAST($2 AS text), CAST($3 AS bigint) FROM live WHERE id IN {ids}
ON CONFLICT (run_id) DO UPDATE
SET fence = excluded.fence, worker = excluded.worker, until_at = excluded.until_at, progress = NULL;

-- renew_run --
UPDATE live SET node = $3, phase = COALESCE(CAST($4 AS smallint), phase)
WHERE id = $1 AND state = 1 AND (CAST($2 AS bigint) IS NULL OR attempt = CAST($2 AS bigint))
  AND EXISTS (SELECT 1 FROM loans o WHERE o.run_id = live.id AND o.fence = live.fence)
RETURNING cancel;

-- renew_loan --
UPDATE loans SET worker = $2, until_at = $3, progress = COALESCE($4, progress) WHERE run_id = $1;

-- load_loans --
SELECT o.run_id, l.job_id, o.fence, l.attempt, o.worker, o.until_at, o.progress
FROM loans o JOIN live l ON l.id = o.run_id AND l.fence = o.fence
WHERE l.state = 1 AND (CAST($1 AS {list}) IS NULL OR o.run_id IN {ids}) ORDER BY l.started_at, o.run_id;

-- load_queued --
SELECT id, attempt + 1, kind, priority, needs IS NOT NULL OR pin IS NOT NULL FROM live
WHERE state = 0 ORDER BY kind, priority DESC, due_at, id LIMIT $1;

-- load_overdue_loans --
SELECT o.run_id, l.job_id, o.fence, l.attempt, o.worker, o.until_at, o.progress
FROM loans o JOIN live l ON l.id = o.run_id AND l.fence = o.fence
WHERE l.state = 1 AND o.until_at <= $1 ORDER BY o.until_at, o.run_id LIMIT $2;

-- drop_loans --
-- By the fence that was seen: a run that is being lent anew has another one by the time its row is reached.
WITH ended AS MATERIALIZED (
  SELECT o.run_id, o.fence FROM loans o
  WHERE NOT EXISTS (SELECT 1 FROM live l WHERE l.id = o.run_id AND l.fence = o.fence AND l.state = 1) LIMIT $1
)
DELETE FROM loans WHERE (run_id, fence) IN (SELECT run_id, fence FROM ended) RETURNING run_id;

-- drop_loan --
DELETE FROM loans WHERE run_id = $1;

-- return_run --
-- Its reason stays: only a run that somebody wants cancelled has one.
UPDATE live SET state = 0, node = NULL, attempt = attempt - 1, started_at = NULL, phase = 1, note = NULL,
  start_by = CASE WHEN attempt = 1 THEN CAST($3 AS bigint) END
WHERE id = $1 AND fence = $2 AND state = 1
  AND EXISTS (SELECT 1 FROM loans o WHERE o.run_id = live.id AND o.fence = live.fence)
RETURNING cancel, job_id;

-- bury_returned --
INSERT INTO history ({history_columns})
SELECT id, job_id, trigger_id, due_at, created_at, NULL, CAST($2 AS bigint), NULL, fence, NULL, 13, attempt, priority,
  lost, kind, reason, NULL, '', NULL, NULL, data
FROM live WHERE id = $1;

-- drop_returned --
DELETE FROM live WHERE id = $1;

-- drop_dead_segments --
DELETE FROM taken_segments WHERE worker NOT IN (SELECT name FROM nodes WHERE state = 'live');

-- give_segments --
-- The lowest free ones, as many as are missing.
INSERT INTO taken_segments (segment, worker, since_at)
WITH RECURSIVE every(segment) AS (
  SELECT 0 UNION ALL SELECT segment + 1 FROM every WHERE segment + 1 < CAST($4 AS integer)
)
SELECT segment, CAST($1 AS text), CAST($3 AS bigint) FROM every
WHERE segment NOT IN (SELECT segment FROM taken_segments)
  AND EXISTS (SELECT 1 FROM nodes WHERE name = $1 AND state = 'live')
ORDER BY segment
LIMIT (SELECT CASE WHEN count(*) < CAST($2 AS bigint) THEN CAST($2 AS bigint) - count(*) ELSE 0 END
       FROM taken_segments WHERE worker = $1);

-- trim_segments --
DELETE FROM taken_segments WHERE segment IN (
  SELECT segment FROM taken_segments WHERE worker = $1 ORDER BY segment LIMIT 100 OFFSET CAST($2 AS bigint));

-- segments_of --
SELECT segment FROM taken_segments WHERE worker = $1 ORDER BY segment;

-- drop_segments --
DELETE FROM taken_segments WHERE worker = $1;

-- load_taken_segments --
SELECT t.segment, t.worker, t.since_at FROM taken_segments t JOIN nodes n ON n.name = t.worker AND n.state = 'live'
ORDER BY t.segment;

-- add_token --
INSERT INTO tokens (name, scope, owner, hash, created_at, expires_at, revoked_at, parent_id, bound)
VALUES ($1, $2, $3, $4, $5, $6, NULL, $7, $8)
RETURNING id, name, scope, owner, hash, created_at, expires_at, revoked_at, parent_id, bound;

-- get_token --
-- It is revoked with those by which it was made: found when it is read, so that none that is made meanwhile escapes.
WITH RECURSIVE line (id, parent_id, revoked_at) AS (
  SELECT id, parent_id, revoked_at FROM tokens WHERE id = $1
  UNION ALL
  SELECT t.id, t.parent_id, t.revoked_at FROM tokens t JOIN line l ON t.id = l.parent_id
)
SELECT id, name, scope, owner, hash, created_at, expires_at,
  coalesce(revoked_at, (SELECT min(revoked_at) FROM line)), parent_id, bound
FROM tokens WHERE id = $1;

-- load_tokens --
WITH RECURSIVE line (of, parent_id, revoked_at) AS (
  SELECT id, parent_id, revoked_at FROM tokens WHERE id IN {ids}
  UNION ALL
  SELECT l.of, t.parent_id, t.revoked_at FROM tokens t JOIN line l ON t.id = l.parent_id
)
SELECT id, name, scope, owner, hash, created_at, expires_at,
  coalesce(revoked_at, (SELECT min(l.revoked_at) FROM line l WHERE l.of = tokens.id)), parent_id, bound
FROM tokens WHERE id IN {ids};

-- list_tokens --
WITH RECURSIVE line (id, revoked_at) AS (
  SELECT id, revoked_at FROM tokens WHERE parent_id IS NULL
  UNION ALL
  SELECT t.id, coalesce(t.revoked_at, l.revoked_at) FROM tokens t JOIN line l ON t.parent_id = l.id
)
SELECT t.id, t.name, t.scope, t.owner, t.hash, t.created_at, t.expires_at, l.revoked_at, t.parent_id, t.bound
FROM tokens t JOIN line l ON l.id = t.id ORDER BY t.id DESC;

-- add_session --
INSERT INTO sessions (token_id, hash, created_at, expires_at) VALUES ($1, $2, $3, $4) RETURNING id;

-- drop_sessions --
DELETE FROM sessions WHERE expires_at <= $1;

-- get_session --
SELECT token_id, hash, expires_at FROM sessions WHERE id = $1;

-- revoke_token --
-- The first time stands, however often it is said.
UPDATE tokens SET revoked_at = coalesce(revoked_at, $2) WHERE id = $1
RETURNING id, name, scope, owner, hash, created_at, expires_at, revoked_at, parent_id, bound;

-- load_jobs --
SELECT {job_columns} FROM jobs WHERE id IN {ids};

-- load_runs --
SELECT {run_columns_live} FROM live WHERE id IN {ids}
UNION ALL
SELECT {run_columns_history} FROM history WHERE id IN {ids};

-- newest_live --
-- A run has the gate of its job, or none.
SELECT {run_columns_live} FROM live WHERE id IN (
  SELECT max(id) FROM (
    SELECT job_id, id FROM live WHERE gate IN {ids}
    UNION ALL SELECT job_id, id FROM live WHERE gate IS NULL AND job_id IN {ids}) AS l GROUP BY job_id);

-- newest_ended --
-- Of each job, the newest run that was neither skipped nor coalesced.
SELECT {run_columns_history} FROM history WHERE id IN (
  SELECT (SELECT max(newest) FROM (
    SELECT (SELECT max(h.id) FROM history h WHERE h.job_id = j.value AND h.state = 10) AS newest
    UNION ALL SELECT (SELECT max(h.id) FROM history h WHERE h.job_id = j.value AND h.state = 11)
    UNION ALL SELECT (SELECT max(h.id) FROM history h WHERE h.job_id = j.value AND h.state = 12)
    UNION ALL SELECT (SELECT max(h.id) FROM history h WHERE h.job_id = j.value AND h.state = 13)) AS ends)
  FROM {ids} AS j);

-- names_of_jobs --
SELECT id, name FROM jobs WHERE id IN {ids};

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

-- put_secret --
INSERT INTO secrets (org, name, version, created_at, updated_at, sealed) VALUES ($1, $2, 1, $4, $4, $3)
ON CONFLICT (org, name) DO UPDATE
SET version = secrets.version + 1, updated_at = excluded.updated_at, sealed = excluded.sealed
RETURNING version;

-- list_secrets --
SELECT name, version, created_at, updated_at FROM secrets WHERE org = $1 ORDER BY name;

-- list_sealed --
SELECT org, name, sealed FROM secrets ORDER BY org, name;

-- delete_secret --
DELETE FROM secrets WHERE org = $1 AND name = $2 RETURNING name;

-- sealable_job --
-- Handlers hold nothing of the kind.
SELECT id, kind, spec FROM jobs WHERE id > $1 AND kind <> 'python' ORDER BY id LIMIT $2;

-- sealable_source --
SELECT id, org, config FROM sources WHERE id > $1 ORDER BY id LIMIT $2;

-- sealable_setting --
SELECT 0, name, value FROM settings WHERE name = 'sealed';

-- reseal_job --
UPDATE jobs SET spec = $4 WHERE id = $1 AND kind = $2 AND spec = $3 RETURNING id;

-- reseal_source --
UPDATE sources SET config = $4 WHERE id = $1 AND CAST(org AS TEXT) = $2 AND config = $3 RETURNING id;

-- reseal_secret --
UPDATE secrets SET sealed = $4 WHERE org = $1 AND name = $2 AND sealed = $3 RETURNING org;

-- reseal_setting --
UPDATE settings SET value = $4 WHERE $1 = 0 AND name = $2 AND value = $3 RETURNING name;

-- load_cursors --
SELECT job_id, value, moved_at, run_id FROM cursors WHERE job_id IN {ids};

-- move_cursor --
-- By a run that has just succeeded; not by one that began before somebody set it.
INSERT INTO cursors (job_id, value, run_id, fence, moved_at)
SELECT job_id, CAST($2 AS text), id, fence, CAST($3 AS bigint) FROM history WHERE id = $1 AND state = 10
ON CONFLICT (job_id) DO UPDATE
SET value = excluded.value, run_id = excluded.run_id, fence = excluded.fence, moved_at = excluded.moved_at
WHERE excluded.run_id > cursors.past_run_id
  OR (excluded.run_id = cursors.past_run_id AND excluded.fence > cursors.past_fence);

-- set_cursor --
INSERT INTO cursors (job_id, value, moved_at, past_run_id, past_fence)
SELECT CAST($1 AS bigint), CAST($2 AS text), CAST($3 AS bigint), COALESCE(r.id, 0), COALESCE(r.fence, 0)
FROM (SELECT 1) AS one
LEFT JOIN (
  SELECT id, fence FROM live WHERE (gate = $1 OR (gate IS NULL AND job_id = $1)) AND state = 1
  ORDER BY id DESC LIMIT 1) AS r ON 1 = 1
WHERE 1 = 1
ON CONFLICT (job_id) DO UPDATE
SET value = excluded.value, moved_at = excluded.moved_at, run_id = NULL, past_run_id = excluded.past_run_id,
  past_fence = excluded.past_fence;

-- drop_cursors --
-- Those of deleted jobs of which no run is left, among the jobs of these runs.
DELETE FROM cursors WHERE job_id IN (
  SELECT j.id FROM jobs j JOIN {ids} AS gone ON gone.value = j.id
  WHERE j.deleted_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM history h WHERE h.job_id = j.id)
    AND NOT EXISTS (SELECT 1 FROM live l WHERE l.gate = j.id)
    AND NOT EXISTS (SELECT 1 FROM live l WHERE l.gate IS NULL AND l.job_id = j.id));

-- drop_cursors_of --
DELETE FROM cursors WHERE job_id IN {ids};

-- drop_locks --
DELETE FROM locks WHERE run_id IN {ids};

-- block_run --
-- An attempt that did not begin, for what it writes is being written. One that somebody wants cancelled keeps its reason.
UPDATE live SET state = 2, reason = CASE WHEN cancel THEN reason ELSE 'destination_busy' END, attempt = attempt - 1,
  node = NULL, started_at = NULL, phase = 1, waits_for = $3, note = $4, eligible_at = $5, start_by = $6
WHERE id = $1 AND fence = $2 AND state = 1
RETURNING cancel, job_id;

-- postpone --
-- What waits for a run that still writes, goes on waiting.
UPDATE live SET eligible_at = $2 WHERE id IN (
  SELECT w.id FROM live w WHERE w.state = 2 AND w.eligible_at <= $1 AND w.reason = 'destination_busy'
    AND EXISTS (SELECT 1 FROM live h WHERE h.id = w.waits_for AND h.state = 1)
  ORDER BY w.eligible_at LIMIT $3);

-- load_sources --
SELECT id, org, owner, name, kind, config, created_at, updated_at FROM sources WHERE id IN {ids};
