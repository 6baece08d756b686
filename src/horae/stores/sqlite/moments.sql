-- load_due [look] --
-- Rows come as one JSON text: a row at a time would hand the interpreter lock back and forth.
SELECT json_group_array(json_array(next_at, trigger_id, version, segment, reserved)) FROM (
  SELECT next_at, trigger_id, version, segment, reserved FROM due
  WHERE (next_at, trigger_id) > ($2, $3) AND next_at < $4 AND segment IN (SELECT value FROM json_each($1))
  ORDER BY next_at, trigger_id LIMIT $5);

-- load_definitions [look] --
SELECT json_group_array(json_array(d.trigger_id, d.version, d.job_id, j.triggers, j.kind, j.policy, j.owner, j.org,
  j.annotations, CASE WHEN j.policy LIKE '%"data.%' THEN j.spec END, j.followed))
FROM due d JOIN jobs j ON j.id = d.job_id WHERE d.trigger_id IN (SELECT value FROM json_each($1));

-- load_last_runs [fire] --
-- By the index of each state in which a run may have run.
SELECT d.trigger_id, EXISTS (
    SELECT 1 FROM live l
    WHERE (l.gate = d.job_id OR (l.gate IS NULL AND l.job_id = d.job_id)) AND l.trigger_id = d.trigger_id),
  (SELECT f.finished_at FROM history f WHERE f.id = (SELECT max(ended) FROM (
    SELECT (SELECT h.id FROM history h WHERE h.job_id = d.job_id AND h.state = {succeeded}
      AND h.trigger_id = d.trigger_id ORDER BY h.id DESC LIMIT 1) AS ended
    UNION ALL SELECT (SELECT h.id FROM history h WHERE h.job_id = d.job_id AND h.state = {failed}
      AND h.trigger_id = d.trigger_id ORDER BY h.id DESC LIMIT 1)
    UNION ALL SELECT (SELECT h.id FROM history h WHERE h.job_id = d.job_id AND h.state = {timed_out}
      AND h.trigger_id = d.trigger_id ORDER BY h.id DESC LIMIT 1)
    UNION ALL SELECT (SELECT h.id FROM history h WHERE h.job_id = d.job_id AND h.state = {cancelled}
      AND h.trigger_id = d.trigger_id ORDER BY h.id DESC LIMIT 1)) AS e))
FROM due d WHERE d.trigger_id IN (SELECT value FROM json_each($1));

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
SELECT json_group_array(json_array(gate, id)) FROM live WHERE gate IN (SELECT value FROM json_each($1));

-- insert_live --
INSERT INTO live (id, job_id, trigger_id, due_at, created_at, gate, start_by, state, reason, priority, overlap, kind,
                  needs, data, pin, eligible_at, queue, pass, share, demand, parent_id, task, followed, resumes, depends) VALUES {rows};

-- load_passes --
-- Of (kind, queue, priority, key, stride) each: how far it has come, or a stride before its line, whichever is further.
SELECT json_group_array(max(COALESCE(own, 0), COALESCE(line, 0))) FROM (
  SELECT
    (SELECT s.pass FROM shares s WHERE s.kind = v.value ->> 0 AND s.queue = v.value ->> 1 AND s.priority = v.value ->> 2
      AND s.key = v.value ->> 3) AS own,
    (SELECT s.pass FROM shares s WHERE s.kind = v.value ->> 0 AND s.queue = v.value ->> 1 AND s.priority = v.value ->> 2
      AND s.key = '') - (v.value ->> 4) AS line
  FROM json_each($1) AS v ORDER BY v.key);

-- move_passes --
INSERT INTO shares (kind, queue, priority, key, pass)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 FROM json_each($1) WHERE true
ON CONFLICT (kind, queue, priority, key) DO UPDATE SET pass = max(pass, excluded.pass);

-- insert_history --
INSERT INTO history ({history_columns}) VALUES {rows};

-- gate_holder --
SELECT id, state FROM live WHERE gate = $1;

-- waiting_of_job --
SELECT id FROM live WHERE job_id = $1 AND state = {blocked} AND reason = 'overlap' ORDER BY id;
