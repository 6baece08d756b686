-- due_of --
SELECT trigger_id, next_at, last_at FROM due WHERE trigger_id IN (SELECT value FROM json_each($1));

-- load_due --
-- Rows come as one JSON text: a row at a time would hand the interpreter lock back and forth.
SELECT json_group_array(json_array(trigger_id, next_at, version, segment, reserved)) FROM (
  SELECT trigger_id, next_at, version, segment, reserved FROM due
  WHERE (next_at, trigger_id) > ($2, $3) AND next_at < $4 AND segment IN (SELECT value FROM json_each($1))
  ORDER BY next_at, trigger_id LIMIT $5);

-- load_definitions --
SELECT json_group_array(json_array(d.trigger_id, d.version, d.job_id, j.triggers, j.kind, j.policy))
FROM due d JOIN jobs j ON j.id = d.job_id WHERE d.trigger_id IN (SELECT value FROM json_each($1));

-- load_last_runs --
-- By the index of each state in which a run may have run.
SELECT d.trigger_id, EXISTS (
    SELECT 1 FROM live l
    WHERE (l.gate = d.job_id OR (l.gate IS NULL AND l.job_id = d.job_id)) AND l.trigger_id = d.trigger_id),
  (SELECT f.finished_at FROM history f WHERE f.id = (SELECT max(ended) FROM (
    SELECT (SELECT h.id FROM history h WHERE h.job_id = d.job_id AND h.state = 10
      AND h.trigger_id = d.trigger_id ORDER BY h.id DESC LIMIT 1) AS ended
    UNION ALL SELECT (SELECT h.id FROM history h WHERE h.job_id = d.job_id AND h.state = 11
      AND h.trigger_id = d.trigger_id ORDER BY h.id DESC LIMIT 1)
    UNION ALL SELECT (SELECT h.id FROM history h WHERE h.job_id = d.job_id AND h.state = 12
      AND h.trigger_id = d.trigger_id ORDER BY h.id DESC LIMIT 1)
    UNION ALL SELECT (SELECT h.id FROM history h WHERE h.job_id = d.job_id AND h.state = 13
      AND h.trigger_id = d.trigger_id ORDER BY h.id DESC LIMIT 1)) AS e))
FROM due d WHERE d.trigger_id IN (SELECT value FROM json_each($1));

-- load_previous --
SELECT j.job_id, (SELECT h.result FROM history h WHERE h.job_id = j.job_id AND h.state = 10 ORDER BY h.id DESC LIMIT 1)
FROM (SELECT value AS job_id FROM json_each($1)) AS j;

-- load_held --
SELECT l.id, l.attempt, l.lost, j.policy, l.cancel, l.trigger_id, l.job_id
FROM live l JOIN jobs j ON j.id = l.job_id WHERE l.id IN (SELECT value FROM json_each($1)) AND l.state = 1;

-- load_ids --
SELECT name, value FROM ids;

-- save_ids --
UPDATE ids SET value = CASE name WHEN 'job' THEN $1 WHEN 'trigger' THEN $2 ELSE $3 END;

-- load_idempotency --
SELECT digest, ids FROM idempotency WHERE scope = $1 AND key = $2;

-- save_idempotency --
INSERT INTO idempotency (scope, key, digest, ids, created_at) VALUES ($1, $2, $3, $4, $5);

-- load_key --
SELECT 1 FROM jobs WHERE org = $1 AND owner = $2 AND key = $3 AND deleted_at IS NULL;

-- insert_jobs --
INSERT INTO jobs ({job_columns}) VALUES {rows};

-- insert_due --
INSERT INTO due (trigger_id, job_id, next_at, version, segment) VALUES {rows};

-- lock_job --
SELECT version, triggers FROM jobs WHERE id = $1 AND deleted_at IS NULL;

-- save_job --
UPDATE jobs SET org = $2, owner = $3, name = $4, key = $5, kind = $6, spec = $7, policy = $8, segment = $9,
  paused = $10, annotations = $11, version = $12, created_at = $13, updated_at = $14, deleted_at = $15, triggers = $16
WHERE id = $1;

-- save_due --
UPDATE due SET next_at = $2, version = $3, segment = $4 WHERE trigger_id = $1;

-- drop_due --
DELETE FROM due WHERE trigger_id IN (SELECT value FROM json_each($1));

-- bury_job --
UPDATE jobs SET deleted_at = $2, updated_at = $2, version = version + 1 WHERE id = $1;

-- alive --
SELECT json_group_array(id) FROM jobs WHERE id IN (SELECT value FROM json_each($1)) AND deleted_at IS NULL;

-- live_of_job --
SELECT id FROM live WHERE gate = $1 OR (gate IS NULL AND job_id = $1);

-- waiting_live --
SELECT id FROM live WHERE job_id = $1 AND state <> 1 LIMIT $2;

-- match_due --
-- Which of (trigger_id, cur_at, version) still stand.
WITH v(trigger_id, cur_at, version) AS (VALUES {rows})
SELECT json_group_array(d.trigger_id) FROM v CROSS JOIN due d
ON d.trigger_id = v.trigger_id AND d.next_at = v.cur_at AND d.version = v.version;

-- advance_due --
WITH v(trigger_id, cur_at, next_at, last_at, reserved) AS (VALUES {rows})
UPDATE due SET next_at = v.next_at, last_at = COALESCE(v.last_at, due.last_at), reserved = v.reserved
FROM v WHERE due.trigger_id = v.trigger_id AND due.next_at = v.cur_at;

-- taken_gates --
SELECT json_group_array(gate) FROM live WHERE gate IN (SELECT value FROM json_each($1));

-- insert_live --
INSERT INTO live (id, job_id, trigger_id, due_at, created_at, gate, start_by, state, reason, priority, overlap, kind,
                  needs, data, pin) VALUES {rows};

-- insert_history --
INSERT INTO history ({history_columns}) VALUES {rows};

-- gate_holder --
SELECT id, state FROM live WHERE gate = $1;

-- waiting_of_job --
SELECT id FROM live WHERE job_id = $1 AND state = 2 AND reason = 'overlap' ORDER BY id;

-- pick --
-- The runs to claim, best first, with what decides that.
SELECT json_group_array(json_array(-priority, pin, id, fence + 1, attempt + 1, job_id, trigger_id, due_at, kind, name, spec,
                                   policy, data, owner)) FROM (
  SELECT r.priority, r.pin, r.id, r.fence, r.attempt, r.job_id, r.trigger_id, r.due_at, r.kind, j.name, j.spec, j.policy,
    r.data, j.owner
  FROM live r JOIN jobs j ON j.id = r.job_id
  WHERE r.state = 0 AND r.kind = $1 AND r.pin IS NULL AND (r.start_by IS NULL OR r.start_by > $4)
    AND (r.needs IS NULL OR NOT EXISTS (
      SELECT 1 FROM json_each(r.needs) n WHERE n.value NOT IN (SELECT value FROM json_each($2))))
  ORDER BY r.priority DESC, r.due_at, r.id LIMIT $3);

-- pick_pinned --
-- The same, of those that only one node may run.
SELECT json_group_array(json_array(-priority, pin, id, fence + 1, attempt + 1, job_id, trigger_id, due_at, kind, name, spec,
                                   policy, data, owner)) FROM (
  SELECT r.priority, r.pin, r.id, r.fence, r.attempt, r.job_id, r.trigger_id, r.due_at, r.kind, j.name, j.spec, j.policy,
    r.data, j.owner
  FROM live r JOIN jobs j ON j.id = r.job_id
  WHERE r.state = 0 AND r.kind = $1 AND r.pin = $5 AND (r.start_by IS NULL OR r.start_by > $4)
    AND (r.needs IS NULL OR NOT EXISTS (
      SELECT 1 FROM json_each(r.needs) n WHERE n.value NOT IN (SELECT value FROM json_each($2))))
  ORDER BY r.priority DESC, r.due_at, r.id LIMIT $3);

-- claim --
-- The start deadline is met now: it does not bind a second attempt.
UPDATE live SET state = 1, attempt = attempt + 1, fence = fence + 1, node = $1, reason = '', started_at = $2,
  start_by = NULL, phase = $4
WHERE id IN (SELECT value FROM json_each($3));

-- load_backlog --
-- Those that any agent may take, those that one may, those that some may: none is hidden behind many of another sort.
SELECT kind, pin, needs, count(*) FROM (
  SELECT * FROM (SELECT kind, pin, needs FROM live WHERE state = 0 AND kind = $1 AND pin IS NULL AND needs IS NULL
    ORDER BY priority DESC, due_at, id LIMIT $2)
  UNION ALL SELECT * FROM (SELECT kind, pin, needs FROM live WHERE state = 0 AND kind = $1 AND pin IS NOT NULL LIMIT $2)
  UNION ALL SELECT * FROM (SELECT kind, pin, needs FROM live
    WHERE state = 0 AND kind = $1 AND pin IS NULL AND needs IS NOT NULL LIMIT $2))
GROUP BY kind, pin, needs;

-- set_phases --
UPDATE live SET phase = x.phase
FROM (SELECT value ->> 0 AS id, value ->> 1 AS fence, value ->> 2 AS phase FROM json_each($1)) AS x
WHERE live.id = x.id AND live.fence = x.fence AND live.state = 1
  AND ($2 IS NULL OR $2 = (SELECT n.session FROM nodes n WHERE n.name = live.node));

-- pick_loan --
-- The best run of each kind by the index, then the best of these.
SELECT id FROM live WHERE id IN (
  SELECT (SELECT q.id FROM live q
          WHERE q.state = 0 AND q.kind = k.value AND q.pin IS NULL AND q.needs IS NULL
            AND (q.start_by IS NULL OR q.start_by > $2)
          ORDER BY q.priority DESC, q.due_at, q.id LIMIT 1)
  FROM json_each($1) AS k)
ORDER BY priority DESC, due_at, id LIMIT 1;

-- lock_segments --
-- There is one writer: nobody else takes any meanwhile.
SELECT 1;

-- match_running --
SELECT json_group_array(json_array(id, fence, CASE WHEN overlap >= 2 THEN job_id END, cancel, started_at))
FROM live WHERE state = 1 AND id IN (SELECT value FROM json_each($1));

-- archive --
-- From live to history with what the attempt reported.
WITH x(id, state, reason, started_at, finished_at, exit_code, message, result, output) AS (VALUES {rows})
INSERT INTO history ({history_columns})
SELECT r.id, r.job_id, r.trigger_id, r.due_at, r.created_at, COALESCE(x.started_at, r.started_at), x.finished_at, NULL,
  r.fence, x.exit_code, x.state, r.attempt, r.priority, r.lost, r.kind,
  CASE WHEN x.state = 13 AND r.cancel THEN r.reason ELSE x.reason END, r.node, x.message, x.result, x.output, r.data
FROM x CROSS JOIN live r ON r.id = x.id;

-- bury_live --
-- From live to history unrun: cancelled, expired or failed while waiting.
INSERT INTO history ({history_columns})
SELECT id, job_id, trigger_id, due_at, created_at, NULL, $2, NULL, fence, NULL, $3, attempt, priority, lost, kind, $4,
  node, $5, NULL, NULL, data
FROM live WHERE id IN (SELECT value FROM json_each($1));

-- drop_live --
DELETE FROM live WHERE id IN (SELECT value FROM json_each($1));

-- wait --
UPDATE live SET state = $2, reason = $3, eligible_at = $4, lost = lost + $5, phase = 1, note = NULL
WHERE id = $1;

-- add_attempt --
INSERT INTO attempts (run_id, attempt, fence, node, state, reason, started_at, finished_at, exit_code, message, output)
SELECT id, attempt, fence, node, $2, $3, COALESCE($4, started_at), $5, $6, $7, $8 FROM live WHERE id = $1;

-- look_up_live --
SELECT id, state, node, CASE WHEN overlap >= 2 AND gate IS NOT NULL THEN job_id END
FROM live WHERE id IN (SELECT value FROM json_each($1));

-- ask_cancel --
UPDATE live SET cancel = 1, reason = $2 WHERE id IN (SELECT value FROM json_each($1));

-- promote --
UPDATE live SET state = 0, gate = job_id, reason = '' WHERE id IN (
  SELECT min(w.id) FROM live w
  WHERE w.state = 2 AND w.reason = 'overlap' AND w.job_id IN (SELECT value FROM json_each($1))
    AND NOT EXISTS (SELECT 1 FROM live g WHERE g.gate = w.job_id)
  GROUP BY w.job_id);

-- look_over --
SELECT
  (SELECT min(eligible_at) FROM live WHERE state = 2),
  (SELECT min(start_by) FROM live WHERE start_by IS NOT NULL AND state <> 1),
  (SELECT json_group_array(job_id) FROM (
    SELECT DISTINCT w.job_id FROM live w WHERE w.state = 2 AND w.reason = 'overlap'
      AND NOT EXISTS (SELECT 1 FROM live g WHERE g.gate = w.job_id) LIMIT 1000));

-- release --
-- What still waits for a run that writes was not put off yet, if there are very many.
UPDATE live SET state = 0, reason = '', eligible_at = NULL, waits_for = NULL, note = NULL WHERE id IN (
  SELECT w.id FROM live w WHERE w.state = 2 AND w.reason IN ('retry', 'destination_busy') AND w.eligible_at <= $1
    AND NOT EXISTS (SELECT 1 FROM live h WHERE h.id = w.waits_for AND h.state = 1)
  ORDER BY w.eligible_at LIMIT $2);

-- expired --
SELECT id, CASE WHEN overlap >= 2 AND gate IS NOT NULL THEN job_id END
FROM live WHERE start_by <= $1 AND state <> 1 ORDER BY start_by LIMIT $2;

-- unrunnable --
-- Kind by kind along the index: what can be run is not looked through.
WITH RECURSIVE kinds(kind) AS (
  SELECT * FROM (SELECT kind FROM live WHERE state = 0 ORDER BY kind LIMIT 1)
  UNION ALL
  SELECT (SELECT l.kind FROM live l WHERE l.state = 0 AND l.kind > k.kind ORDER BY l.kind LIMIT 1)
  FROM kinds k WHERE k.kind IS NOT NULL
)
SELECT l.id, l.kind FROM kinds k CROSS JOIN live l ON l.kind = k.kind AND l.state = 0
WHERE k.kind NOT IN (SELECT value FROM json_each($1)) LIMIT $2;

-- mark_unlabelled --
UPDATE live SET reason = 'no_label' WHERE id IN (
  SELECT l.id FROM live l WHERE l.state = 0 AND l.needs IS NOT NULL AND l.reason = '' AND NOT EXISTS (
    SELECT 1 FROM json_each($1) a WHERE NOT EXISTS (
      SELECT 1 FROM json_each(l.needs) n WHERE n.value NOT IN (SELECT value FROM json_each(a.value))))
  LIMIT $2);

-- is_watching_ended --
SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND name = 'history_untold';

-- watch_ended --
CREATE TRIGGER IF NOT EXISTS history_untold AFTER INSERT ON history
BEGIN INSERT OR IGNORE INTO untold (run_id) VALUES (new.id); END;

-- unwatch_ended --
DROP TRIGGER IF EXISTS history_untold;

-- purge --
DELETE FROM history WHERE id IN (SELECT value FROM json_each($1)) RETURNING job_id;

-- purge_attempts --
DELETE FROM attempts WHERE run_id IN (SELECT value FROM json_each($1));

-- outdated_attempts --
SELECT run_id, attempt, fence, output IS NOT NULL OR reason = 'lost' FROM attempts
WHERE run_id IN (SELECT value FROM json_each($1));

-- census --
SELECT
  (SELECT count(*) FROM jobs WHERE deleted_at IS NULL),
  (SELECT count(*) FROM due),
  (SELECT next_at FROM due WHERE next_at < 9223372036854775807 ORDER BY next_at LIMIT 1),
  (SELECT min(due_at) FROM live WHERE state = 0);

-- beat --
UPDATE nodes SET beat = beat + 1, busy = $2, heartbeat_at = $3
WHERE name = $1 AND state IN ('live', 'draining') AND ($4 IS NULL OR session = $4) RETURNING 0, beat, wanted;

-- bury_nodes --
-- Only what was seen to stand still, and only by whom the lead belongs to.
UPDATE nodes SET state = 'gone', beat = beat + 1
WHERE EXISTS (SELECT 1 FROM json_each($1) x WHERE x.value ->> 0 = nodes.name AND x.value ->> 1 = nodes.beat
    AND x.value ->> 2 = nodes.session AND x.value ->> 3 = nodes.state)
  AND EXISTS (SELECT 1 FROM leases WHERE name = $2 AND owner = $3 AND term = $4) RETURNING name;

-- open_line --
UPDATE nodes SET via = $3, line = $4, session = session + 1
WHERE name = $1 AND (identity = $2 OR state = 'gone') RETURNING session;

-- may_claim --
SELECT 1 FROM nodes WHERE name = $1 AND session = $2 AND state <> 'gone';

-- session_of --
SELECT -1, session, state FROM nodes WHERE name = $1;

-- digest_of --
SELECT count(*), COALESCE(sum({digest}), 0) FROM live WHERE node = $1 AND state = 1;

-- cancels_of --
SELECT id, fence FROM live WHERE cancel AND node = $1 AND state = 1;

-- assign_segments --
INSERT INTO segments (segment, owner, term)
SELECT m.key, m.value, 1 FROM json_each($1) m
WHERE EXISTS (SELECT 1 FROM leases WHERE name = $2 AND owner = $3 AND term = $4)
ON CONFLICT (segment) DO UPDATE SET owner = excluded.owner, term = segments.term + 1
RETURNING segment;

-- get_sealed --
SELECT name, sealed FROM secrets WHERE org = $1 AND name IN (SELECT value FROM json_each($2));

-- hold_locks --
-- There is one writer: nobody else takes any meanwhile.
SELECT 1;

-- take_locks --
-- A lock is void when its run is not running under its fence any more; an older run that waits for it comes first.
INSERT INTO locks (name, run_id, fence)
SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each($1) WHERE 1 = 1
ON CONFLICT (name) DO UPDATE SET run_id = excluded.run_id, fence = excluded.fence
WHERE NOT EXISTS (SELECT 1 FROM live l WHERE l.id = locks.run_id AND l.fence = locks.fence AND l.state = 1)
  AND NOT EXISTS (SELECT 1 FROM live w WHERE w.state = 2 AND w.waits_for = locks.run_id AND w.id < excluded.run_id)
RETURNING name, run_id;

-- lock_holders --
SELECT name, run_id FROM locks WHERE name IN (SELECT value FROM json_each($1));

-- note_progress --
UPDATE live SET note = x.note
FROM (SELECT value ->> 0 AS id, value ->> 1 AS fence, value ->> 2 AS note FROM json_each($1)) AS x
WHERE live.id = x.id AND live.fence = x.fence AND live.state = 1
  AND ($2 IS NULL OR $2 = (SELECT n.session FROM nodes n WHERE n.name = live.node));
