-- now --
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- timeline --
-- The number of failovers and restores that the server has behind it, plus one: the first 8 digits of its log files.
SELECT ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int;

-- note_timeline --
-- How many seconds ago the first process met this timeline: now, if that is this one.
WITH c AS (SELECT extract(epoch FROM clock_timestamp()) AS now), noted AS (
  INSERT INTO settings (name, value) SELECT 'timeline_' || $1::text, now::text FROM c
  ON CONFLICT (name) DO UPDATE SET value = settings.value RETURNING value
)
SELECT greatest(0, c.now - noted.value::numeric)::float8 FROM c, noted;

-- channel --
-- A schema of its own is an installation of its own; the hash keeps any name within what a channel may be called.
SELECT 'horae_' || left(md5(current_schema()), 16);

-- count_listeners --
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = $1 AND pid <> pg_backend_pid();

-- notify --
SELECT pg_notify($1, $2);

-- count_pollers --
-- Those that look at the table of hints, beside us.
SELECT count(*) FROM hints
WHERE topic = '' AND teller <> $1 AND told_at > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - 10000000;

-- tell_pollers --
INSERT INTO hints (teller, topic, told, told_at)
SELECT $1, topic, 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM unnest($2::text[]) AS t(topic)
ON CONFLICT (teller, topic) DO UPDATE SET told = hints.told + 1, told_at = excluded.told_at;

-- load_hints --
SELECT teller, topic, told FROM hints WHERE topic <> '' AND teller <> $1;

-- drop_hints --
-- Of tellers that have been silent for an hour, and so are gone or have nothing to say.
DELETE FROM hints WHERE told_at < (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - 3600000000;

-- find_jobs --
SELECT id FROM jobs WHERE id = ANY($1::bigint[]);

-- due_of --
SELECT trigger_id, next_at, last_at FROM due WHERE trigger_id = ANY($1::bigint[]);

-- load_due --
-- One index range for all segments, because a scheduler owns a good share of them: one range for each would read a
-- hundred times the limit. The lower bound keeps the scan clear of rows that fired long ago.
SELECT trigger_id, next_at, version, segment, reserved FROM due
WHERE (next_at, trigger_id) > ($2::bigint, $3::bigint) AND next_at < $4 AND segment = ANY($1::smallint[])
ORDER BY next_at, trigger_id LIMIT $5;

-- load_definitions --
SELECT d.trigger_id, d.version, d.job_id,
  (SELECT ARRAY[j.triggers, j.kind, j.policy] FROM jobs j WHERE j.id = d.job_id)
FROM due d WHERE d.trigger_id = ANY($1::bigint[]);

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
FROM due d WHERE d.trigger_id = ANY($1::bigint[]);

-- load_previous --
SELECT j.job_id, (SELECT h.result FROM history h WHERE h.job_id = j.job_id AND h.state = 10 ORDER BY h.id DESC LIMIT 1)
FROM unnest($1::bigint[]) AS j(job_id);

-- load_held --
SELECT l.id, l.attempt, l.lost, j.policy, l.cancel, l.trigger_id, l.job_id
FROM live l JOIN jobs j ON j.id = l.job_id WHERE l.id = ANY($1::bigint[]) AND l.state = 1;

-- allocate --
SELECT ARRAY(SELECT nextval('job_id') FROM generate_series(1, $1::int)),
       ARRAY(SELECT nextval('trigger_id') FROM generate_series(1, $2::int));

-- submit --
-- Jobs and their due rows in one statement.
WITH j AS (
  INSERT INTO jobs ({job_columns})
  SELECT * FROM unnest($1::bigint[], $2::int[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
    $8::text[], $9::smallint[], $10::bool[], $11::text[], $12::int[], $13::bigint[], $14::bigint[], $15::bigint[],
    $16::text[])
)
INSERT INTO due (trigger_id, job_id, next_at, version, segment)
SELECT * FROM unnest($17::bigint[], $18::bigint[], $19::bigint[], $20::int[], $21::smallint[]);

-- load_idempotency --
SELECT i.scope, i.key, i.digest, i.ids
FROM idempotency i JOIN unnest($1::text[], $2::text[]) AS k(scope, key) USING (scope, key);

-- save_idempotency --
INSERT INTO idempotency (scope, key, digest, ids, created_at)
SELECT scope, key, digest, ids, $5 FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
  AS k(scope, key, digest, ids);

-- load_keys --
SELECT j.org, j.owner, j.key
FROM jobs j JOIN unnest($1::int[], $2::text[], $3::text[]) AS k(org, owner, key) USING (org, owner, key)
WHERE j.deleted_at IS NULL;

-- lock_job --
SELECT version, triggers FROM jobs WHERE id = $1 AND deleted_at IS NULL FOR UPDATE;

-- lock_due --
SELECT trigger_id, last_at FROM due WHERE trigger_id = ANY($1::bigint[]) FOR UPDATE;

-- save_job --
UPDATE jobs SET org = $2, owner = $3, name = $4, key = $5, kind = $6, spec = $7, policy = $8, segment = $9,
  paused = $10, annotations = $11, version = $12, created_at = $13, updated_at = $14, deleted_at = $15, triggers = $16
WHERE id = $1;

-- save_due --
INSERT INTO due (trigger_id, job_id, next_at, version, segment)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::int[], $5::smallint[])
ON CONFLICT (trigger_id) DO UPDATE
SET next_at = excluded.next_at, version = excluded.version, segment = excluded.segment;

-- drop_due --
DELETE FROM due WHERE trigger_id = ANY($1::bigint[]);

-- bury_job --
UPDATE jobs SET deleted_at = $2, updated_at = $2, version = version + 1 WHERE id = $1;

-- live_of_job --
-- Locked, so that none is claimed or ended before the next statement sees to it.
SELECT id FROM live WHERE gate = $1 OR (gate IS NULL AND job_id = $1) ORDER BY id FOR UPDATE;

-- waiting_live --
SELECT id FROM live WHERE job_id = $1 AND state <> 1 LIMIT $2 FOR UPDATE;

-- fire --
-- Advance by compare-and-set, and make the runs of those that held. `forbid` runs that find the gate
-- taken become history at once; those of `queue` and `replace` are left to the caller.
WITH v AS MATERIALIZED (
  SELECT trigger_id, segment, version, cur_at, next_at, last_at, COALESCE(due_at, cur_at) AS due_at,
    unborn IS NULL AS born, kind, COALESCE(priority, 0::smallint) AS priority,
    COALESCE(overlap, 0::smallint) AS overlap, start_by, data, needs, reserve,
    COALESCE(newest, cur_at) AS newest, COALESCE(reserved, nextval('run_id')) AS run_id
  FROM unnest($2::bigint[], $3::smallint[], $4::int[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
              $9::bool[], $10::text[], $11::smallint[], $12::smallint[], $13::bigint[], $14::text[], $15::text[],
              $16::bigint[], $17::bool[], $18::bigint[])
    AS t(trigger_id, segment, version, cur_at, next_at, last_at, due_at,
         unborn, kind, priority, overlap, start_by, data, needs,
         reserved, reserve, newest)
), c AS (
  SELECT COALESCE($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), stale AS (
  SELECT s.segment FROM segments s JOIN unnest($19::smallint[], $20::bigint[]) AS g(segment, term) USING (segment)
  WHERE s.term <> g.term
), fired AS (
  UPDATE due d
  SET next_at = v.next_at, last_at = COALESCE(v.last_at, d.last_at), reserved = CASE WHEN v.reserve THEN v.run_id END
  FROM v
  WHERE d.trigger_id = ANY($2::bigint[]) AND d.segment = v.segment AND d.next_at = v.cur_at
    AND d.trigger_id = v.trigger_id AND d.version = v.version AND v.newest <= (SELECT now FROM c)
    AND v.newest < v.next_at AND v.segment <> ALL (ARRAY(SELECT segment FROM stale))
  RETURNING d.job_id, v.*
), made AS (
  INSERT INTO live (id, job_id, trigger_id, due_at, created_at, gate, start_by, state, priority, overlap, kind, needs,
                    data)
  SELECT run_id, job_id, trigger_id, due_at, (SELECT now FROM c), CASE WHEN overlap <> 1 THEN job_id END, start_by, 0,
    priority, overlap, kind, needs::text[], data
  FROM fired WHERE born ORDER BY due_at
  ON CONFLICT (gate) WHERE gate IS NOT NULL DO NOTHING
  RETURNING id
), skipped AS (
  INSERT INTO history ({history_columns})
  SELECT run_id, job_id, trigger_id, due_at, (SELECT now FROM c), NULL, (SELECT now FROM c), NULL, 0, NULL, 14, 0,
    priority, 0, kind, 'overlap', NULL, 'another run of this job was live', NULL, NULL, data
  FROM fired WHERE born AND overlap = 0 AND run_id NOT IN (SELECT id FROM made)
  RETURNING id
)
SELECT (SELECT array_agg(trigger_id) FROM fired), (SELECT array_agg(run_id) FROM fired),
       (SELECT array_agg(id) FROM made), (SELECT count(*) FROM skipped), (SELECT now FROM c),
       ARRAY(SELECT segment FROM stale);

-- enqueue --
-- Runs by request: due now, by the same rule. The jobs are locked against their deletion, which would not see what is
-- being made here; those deleted already get no run.
WITH alive AS MATERIALIZED (
  SELECT id FROM jobs WHERE id = ANY($2::bigint[]) AND deleted_at IS NULL FOR KEY SHARE
), v AS MATERIALIZED (
  SELECT t.*, CASE WHEN job_id IN (SELECT id FROM alive) THEN nextval('run_id') END AS run_id
  FROM unnest($2::bigint[], $3::text[], $4::smallint[], $5::smallint[], $6::bigint[], $7::text[], $8::text[],
              $9::text[])
    WITH ORDINALITY AS t(job_id, kind, priority, overlap, start_by, data, needs, pin, number)
), c AS (
  SELECT COALESCE($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), made AS (
  INSERT INTO live (id, job_id, due_at, created_at, gate, start_by, state, priority, overlap, kind, needs, data, pin)
  SELECT run_id, job_id, (SELECT now FROM c), (SELECT now FROM c), CASE WHEN overlap <> 1 THEN job_id END, start_by, 0,
    priority, overlap, kind, needs::text[], data, pin
  FROM v WHERE run_id IS NOT NULL ON CONFLICT (gate) WHERE gate IS NOT NULL DO NOTHING
  RETURNING id
), skipped AS (
  INSERT INTO history ({history_columns})
  SELECT run_id, job_id, NULL, (SELECT now FROM c), (SELECT now FROM c), NULL, (SELECT now FROM c), NULL, 0, NULL, 14,
    0, priority, 0, kind, 'overlap', NULL, 'another run of this job was live', NULL, NULL, data
  FROM v WHERE run_id IS NOT NULL AND overlap = 0 AND run_id NOT IN (SELECT id FROM made)
)
SELECT (SELECT array_agg(run_id ORDER BY number) FROM v), (SELECT array_agg(id) FROM made), (SELECT now FROM c);

-- passed --
-- Moments that never run, as history: skipped(misfire) or coalesced into a run.
INSERT INTO history ({history_columns})
SELECT nextval('run_id'), p.job_id, p.trigger_id, p.due_at, $1, NULL, $1, p.into_run_id, 0, NULL, p.state, 0,
  p.priority, 0, p.kind, p.reason, NULL, '', NULL, NULL, NULL
FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::smallint[], $7::smallint[], $8::text[],
            $9::text[])
  AS p(job_id, trigger_id, due_at, into_run_id, state, priority, kind, reason);

-- lock_gate --
-- The run that holds a job's gate; locked, so that it cannot end before its successor is written.
SELECT id, state FROM live WHERE gate = $1 FOR UPDATE;

-- waiting_of_job --
SELECT id FROM live WHERE job_id = $1 AND state = 2 AND reason = 'overlap' ORDER BY id;

-- add_successor --
INSERT INTO live (id, job_id, trigger_id, due_at, created_at, gate, start_by, state, reason, priority, overlap, kind,
                  needs, data, pin)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13::text[], $14, $15);

-- add_skipped --
INSERT INTO history ({history_columns})
VALUES ($1, $2, $3, $4, $5, NULL, $5, NULL, 0, NULL, 14, 0, $6, 0, $7, 'overlap', NULL, $8, NULL, NULL, $9);

-- claim --
-- Many wants of nodes with the same labels, in one statement: the best runs of each kind by the partial index, which the
-- literal state lets serve, and those pinned to one of the nodes by theirs; the best of both are dealt out, every node's
-- first slot before anybody's second. What the job says is looked up row by row, as one array: a join could begin with
-- all jobs. The start deadline is met now: it does not bind a second attempt.
-- The rows of the nodes are locked only where there is something to claim, and in order, as beats lock them: no new line
-- of a node opens before this has committed, and a want of an earlier line gets one row without an id.
-- Where to look is said by ranges of priorities, and by places to begin at (stores.marks); the row of number 0 says how
-- many entries of the index were gone by, as the server counts them for this session.
WITH c AS MATERIALIZED (
  SELECT COALESCE($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now,
    pg_stat_get_xact_tuples_returned(to_regclass('live_queued')) AS counted
), w AS MATERIALIZED (
  SELECT * FROM unnest($4::text[], $5::text[], $6::int[], $7::smallint[], $8::bigint[])
    WITH ORDINALITY AS t(node, kind, room, phase, session, number)
), k AS MATERIALIZED (
  SELECT kind, sum(room) AS room, min(counted) AS counted FROM w CROSS JOIN c GROUP BY kind
), found AS MATERIALIZED (
  SELECT q.* FROM unnest($9::text[], $10::smallint[], $11::smallint[]) AS g(kind, lowest, highest)
  JOIN k USING (kind) CROSS JOIN LATERAL (
    SELECT id, kind, pin, priority, due_at FROM live
    WHERE state = 0 AND live.kind = g.kind AND priority <= g.highest AND priority >= g.lowest
      AND pin IS NULL AND (needs IS NULL OR needs <@ $3::text[])
      AND (start_by IS NULL OR start_by > (SELECT now FROM c))
    ORDER BY priority DESC, due_at, id LIMIT k.room FOR UPDATE SKIP LOCKED) AS q
  UNION ALL SELECT q.* FROM unnest($12::text[], $13::smallint[], $14::bigint[], $15::bigint[])
    AS m(kind, priority, due_at, id)
  JOIN k USING (kind) CROSS JOIN LATERAL (
    SELECT id, kind, pin, priority, due_at FROM live
    WHERE state = 0 AND live.kind = m.kind AND live.priority = m.priority AND (live.due_at, live.id) > (m.due_at, m.id)
      AND pin IS NULL AND (needs IS NULL OR needs <@ $3::text[])
      AND (start_by IS NULL OR start_by > (SELECT now FROM c))
    ORDER BY priority DESC, due_at, id LIMIT k.room FOR UPDATE SKIP LOCKED) AS q
  UNION ALL SELECT q.* FROM w CROSS JOIN LATERAL (
    SELECT id, kind, pin, priority, due_at FROM live
    WHERE state = 0 AND pin = w.node AND live.kind = w.kind AND (needs IS NULL OR needs <@ $3::text[])
      AND (start_by IS NULL OR start_by > (SELECT now FROM c))
    ORDER BY priority DESC, due_at, id LIMIT w.room FOR UPDATE SKIP LOCKED) AS q
), best AS MATERIALIZED (
  SELECT id, kind, pin, nth FROM (
    SELECT id, kind, pin, row_number() OVER (PARTITION BY kind, pin ORDER BY priority DESC, due_at, id) AS nth,
      row_number() OVER (PARTITION BY kind ORDER BY priority DESC, due_at, id) AS place FROM found) AS f
  JOIN k USING (kind) WHERE place <= room
), line AS MATERIALIZED (
  SELECT name, session FROM nodes
  WHERE name = ANY($4::text[]) AND state <> 'gone' AND EXISTS (SELECT 1 FROM best) ORDER BY name FOR SHARE
), late AS MATERIALIZED (
  SELECT number FROM w WHERE session IS NOT NULL AND EXISTS (SELECT 1 FROM best WHERE best.kind = w.kind)
    AND (node, session) NOT IN (SELECT name, session FROM line)
), slot AS MATERIALIZED (
  SELECT number, node, kind, nth FROM (SELECT * FROM w WHERE number NOT IN (SELECT number FROM late)) AS w
  CROSS JOIN LATERAL generate_series(1, LEAST(room, (SELECT count(*) FROM best))) AS s(nth)
), given AS MATERIALIZED (
  SELECT b.id, s.number FROM best b JOIN slot s ON s.node = b.pin AND s.kind = b.kind AND s.nth = b.nth
  UNION ALL SELECT b.id, s.number FROM best b JOIN (
    SELECT number, kind, row_number() OVER (PARTITION BY kind ORDER BY nth, number) AS place FROM slot
    WHERE (node, kind, nth) NOT IN (SELECT pin, kind, nth FROM best WHERE pin IS NOT NULL)) AS s
  ON s.kind = b.kind AND s.place = b.nth WHERE b.pin IS NULL
), claimed AS (
UPDATE live r SET state = 1, attempt = attempt + 1, fence = GREATEST(fence + 1, $2), node = w.node, reason = '',
  start_by = NULL, started_at = (SELECT now FROM c), phase = w.phase
FROM given g JOIN w USING (number)
WHERE r.id = ANY(ARRAY(SELECT id FROM given)) AND r.id = g.id
RETURNING w.number, r.id, r.fence, r.attempt, r.job_id, r.trigger_id, r.due_at, r.kind,
  (SELECT ARRAY[j.name, j.spec, j.policy, j.owner] FROM jobs j WHERE j.id = r.job_id), r.data,
  CASE WHEN r.pin IS NULL THEN r.priority END
)
SELECT * FROM claimed UNION ALL SELECT number, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM late
UNION ALL SELECT 0, pg_stat_get_xact_tuples_returned(to_regclass('live_queued')) - min(counted),
  NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM k;

-- load_backlog --
-- Those that any agent may take, those that one may, those that some may: none is hidden behind many of another sort.
SELECT k.kind, q.pin, q.needs, count(*) FROM unnest($1::text[]) AS k(kind) CROSS JOIN LATERAL (
  (SELECT pin, needs FROM live WHERE state = 0 AND live.kind = k.kind AND pin IS NULL AND needs IS NULL
   ORDER BY priority DESC, due_at, id LIMIT $2)
  UNION ALL (SELECT pin, needs FROM live WHERE state = 0 AND live.kind = k.kind AND pin IS NOT NULL LIMIT $2)
  UNION ALL (SELECT pin, needs FROM live
    WHERE state = 0 AND live.kind = k.kind AND pin IS NULL AND needs IS NOT NULL LIMIT $2)) AS q
GROUP BY k.kind, q.pin, q.needs;

-- set_phases --
UPDATE live r SET phase = x.phase
FROM unnest($1::bigint[], $2::int[], $3::smallint[]) AS x(id, fence, phase)
WHERE r.id = ANY($1::bigint[]) AND r.id = x.id AND r.fence = x.fence AND r.state = 1
  AND ($4::bigint IS NULL OR $4 = (SELECT n.session FROM nodes n WHERE n.name = r.node));

-- pick_loan --
-- The best run of each kind by the index, then the best of these.
SELECT q.id FROM unnest($1::text[]) AS k(kind) CROSS JOIN LATERAL (
  SELECT id, priority, due_at FROM live
  WHERE state = 0 AND live.kind = k.kind AND pin IS NULL AND needs IS NULL AND (start_by IS NULL OR start_by > $2)
  ORDER BY priority DESC, due_at, id LIMIT 1 FOR UPDATE SKIP LOCKED) AS q
ORDER BY q.priority DESC, q.due_at, q.id LIMIT 1;

-- lock_segments --
-- Two workers that ask at once must not see the same segments free.
LOCK TABLE taken_segments IN SHARE ROW EXCLUSIVE MODE;

-- finish --
-- From live to history under the fence; a waiting successor takes the gate. The clock of whoever reports may be wrong:
-- an attempt did not begin before it was claimed, nor end later than now; it keeps its length, if that makes sense.
WITH c AS (
  SELECT COALESCE($11::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), x AS (
  SELECT id, fence, COALESCE(state, 10::smallint) AS state, COALESCE(reason, '') AS reason,
    started_at - GREATEST(finished_at - (SELECT now FROM c), 0) AS started_at,
    LEAST(finished_at, (SELECT now FROM c)) AS finished_at,
    exit_code, COALESCE(message, '') AS message, result, output
  FROM unnest($1::bigint[], $2::int[], $3::smallint[], $4::text[], $5::bigint[], $6::bigint[], $7::int[], $8::text[],
              $9::text[], $10::text[])
    AS t(id, fence, state, reason, started_at, finished_at, exit_code, message, result, output)
), d AS (
  DELETE FROM live r USING x WHERE r.id = ANY($1::bigint[]) AND r.id = x.id AND r.fence = x.fence AND r.state = 1
  RETURNING r.id, r.job_id, r.trigger_id, r.due_at, r.created_at,
    LEAST(GREATEST(x.started_at, r.started_at), (SELECT now FROM c)) AS started_at,
    CASE WHEN x.finished_at < x.started_at THEN (SELECT now FROM c) ELSE
      LEAST(x.finished_at + GREATEST(r.started_at - COALESCE(x.started_at, x.finished_at), 0), (SELECT now FROM c))
    END AS finished_at, r.fence, x.exit_code, x.state, r.attempt, r.priority, r.lost, r.kind,
    CASE WHEN x.state = 13 AND r.cancel THEN r.reason ELSE x.reason END AS reason, r.node, x.message, x.result, x.output,
    r.data, r.overlap
), h AS (
  INSERT INTO history ({history_columns})
  SELECT id, job_id, trigger_id, due_at, created_at, started_at, finished_at, NULL, fence, exit_code, state, attempt,
    priority, lost, kind, reason, node, message, result, output, data
  FROM d
), p AS (
  UPDATE live s SET state = 0, gate = s.job_id, reason = ''
  WHERE s.id = ANY(ARRAY(
    SELECT min(w.id) FROM live w
    WHERE w.state = 2 AND w.reason = 'overlap' AND w.job_id = ANY(ARRAY(SELECT job_id FROM d WHERE overlap >= 2))
    GROUP BY w.job_id))
  RETURNING s.id
)
SELECT (SELECT array_agg(id) FROM d), (SELECT count(*) FROM p);

-- lock_held --
-- Whether somebody wants these cancelled; from now on nobody else can say so.
SELECT id, cancel FROM live WHERE id = ANY($1::bigint[]) ORDER BY id FOR UPDATE;

-- wait --
-- Attempts that did not end their run: back to blocked or queued, with a record of the attempt. Times as in `finish`.
WITH c AS (
  SELECT COALESCE($14::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), x AS (
  SELECT id, fence, next_state, next_reason, eligible_at, lost, state, reason,
    started_at - GREATEST(finished_at - (SELECT now FROM c), 0) AS started_at,
    LEAST(finished_at, (SELECT now FROM c)) AS finished_at, exit_code, message, output
  FROM unnest($1::bigint[], $2::int[], $3::smallint[], $4::text[], $5::bigint[], $6::smallint[],
              $7::smallint[], $8::text[], $9::bigint[], $10::bigint[], $11::int[], $12::text[], $13::text[])
    AS t(id, fence, next_state, next_reason, eligible_at, lost, state, reason, started_at, finished_at, exit_code,
         message, output)
), u AS (
  UPDATE live r SET state = x.next_state, reason = x.next_reason, eligible_at = x.eligible_at, lost = r.lost + x.lost,
    phase = 1, note = NULL
  FROM x WHERE r.id = ANY($1::bigint[]) AND r.id = x.id AND r.fence = x.fence AND r.state = 1
  RETURNING r.id, r.attempt, r.fence, r.node, x.state, x.reason,
    LEAST(GREATEST(x.started_at, r.started_at), (SELECT now FROM c)) AS started_at,
    CASE WHEN x.finished_at < x.started_at THEN (SELECT now FROM c) ELSE
      LEAST(x.finished_at + GREATEST(r.started_at - COALESCE(x.started_at, x.finished_at), 0), (SELECT now FROM c))
    END AS finished_at, x.exit_code, x.message, x.output
)
INSERT INTO attempts (run_id, attempt, fence, node, state, reason, started_at, finished_at, exit_code, message, output)
SELECT * FROM u RETURNING run_id;

-- cancel --
WITH w AS (
  DELETE FROM live WHERE id = ANY($1::bigint[]) AND state IN (0, 2) RETURNING *
), h AS (
  INSERT INTO history ({history_columns})
  SELECT id, job_id, trigger_id, due_at, created_at, NULL, $3, NULL, fence, NULL, 13, attempt, priority, lost, kind,
    $2::text, node, '', NULL, NULL, data
  FROM w
), a AS (
  UPDATE live SET cancel = true, reason = $2::text WHERE id = ANY($1::bigint[]) AND state = 1 RETURNING id, node
)
SELECT id, NULL AS node, CASE WHEN overlap >= 2 AND gate IS NOT NULL THEN job_id END FROM w
UNION ALL SELECT id, node, NULL FROM a;

-- promote --
-- The oldest waiting successor of each job takes the free gate.
UPDATE live s SET state = 0, gate = s.job_id, reason = ''
WHERE s.id = ANY(ARRAY(
  SELECT min(w.id) FROM live w
  WHERE w.state = 2 AND w.reason = 'overlap' AND w.job_id = ANY($1::bigint[])
    AND NOT EXISTS (SELECT 1 FROM live g WHERE g.gate = w.job_id)
  GROUP BY w.job_id))
RETURNING s.id;

-- look_over --
-- What the sweep has to do, in one cheap look: the next moment, and jobs whose successors may wait in vain.
SELECT
  (SELECT min(eligible_at) FROM live WHERE state = 2),
  (SELECT min(start_by) FROM live WHERE start_by IS NOT NULL AND state <> 1),
  ARRAY(SELECT DISTINCT w.job_id FROM live w WHERE w.state = 2 AND w.reason = 'overlap'
          AND NOT EXISTS (SELECT 1 FROM live g WHERE g.gate = w.job_id) LIMIT 1000),
  COALESCE($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);

-- release --
-- What still waits for a run that writes was not put off yet, if there are very many.
UPDATE live SET state = 0, reason = '', eligible_at = NULL, waits_for = NULL, note = NULL WHERE id = ANY(ARRAY(
  SELECT w.id FROM live w WHERE w.state = 2 AND w.reason IN ('retry', 'destination_busy') AND w.eligible_at <= $1
    AND NOT EXISTS (SELECT 1 FROM live h WHERE h.id = w.waits_for AND h.state = 1)
  ORDER BY w.eligible_at LIMIT $2 FOR UPDATE OF w)) RETURNING id;

-- expire --
WITH d AS (
  DELETE FROM live WHERE id = ANY(ARRAY(
    SELECT id FROM live WHERE start_by <= $1 AND state <> 1 ORDER BY start_by LIMIT $2 FOR UPDATE)) RETURNING *
), h AS (
  INSERT INTO history ({history_columns})
  SELECT id, job_id, trigger_id, due_at, created_at, NULL, $1, NULL, fence, NULL, 14, attempt, priority, lost, kind,
    'start_deadline', node, 'no agent took it before its start deadline', NULL, NULL, data
  FROM d
)
SELECT id, CASE WHEN overlap >= 2 AND gate IS NOT NULL THEN job_id END FROM d;

-- fail_unrunnable --
-- Kind by kind along the index: what can be run is not looked through. What is being claimed is left to that.
WITH RECURSIVE kinds(kind) AS (
  (SELECT kind FROM live WHERE state = 0 ORDER BY kind LIMIT 1)
  UNION ALL
  SELECT (SELECT l.kind FROM live l WHERE l.state = 0 AND l.kind > k.kind ORDER BY l.kind LIMIT 1)
  FROM kinds k WHERE k.kind IS NOT NULL
), d AS (
  DELETE FROM live WHERE id = ANY(ARRAY(
    SELECT l.id FROM live l WHERE l.state = 0
      AND l.kind = ANY(ARRAY(SELECT kind FROM kinds WHERE kind IS NOT NULL AND kind <> ALL($1::text[])))
    LIMIT $5 FOR UPDATE SKIP LOCKED)) RETURNING *
)
INSERT INTO history ({history_columns})
SELECT id, job_id, trigger_id, due_at, created_at, NULL, $3, NULL, fence, NULL, 11, attempt, priority, lost, kind,
  'no_agent', node, $2 || COALESCE(': ' || ($4::jsonb ->> kind), ''), NULL, NULL, data
FROM d RETURNING id;

-- mark_unlabelled --
UPDATE live SET reason = 'no_label' WHERE id = ANY(ARRAY(
  SELECT l.id FROM live l WHERE l.state = 0 AND l.needs IS NOT NULL AND l.reason = ''
    AND NOT EXISTS (SELECT 1 FROM unnest($1::text[]) AS a(labels) WHERE l.needs <@ a.labels::text[])
  LIMIT $2 FOR UPDATE SKIP LOCKED))
RETURNING id;

-- is_watching_ended --
SELECT tgenabled <> 'D' FROM pg_trigger WHERE tgrelid = 'history'::regclass AND tgname = 'history_untold';

-- watch_ended --
ALTER TABLE history ENABLE TRIGGER history_untold;

-- unwatch_ended --
ALTER TABLE history DISABLE TRIGGER history_untold;

-- purge --
-- Answers the jobs whose runs went.
WITH gone AS (DELETE FROM history WHERE id = ANY($1::bigint[]) RETURNING job_id),
  a AS (DELETE FROM attempts WHERE run_id = ANY($1::bigint[])),
  u AS (DELETE FROM untold WHERE run_id = ANY($1::bigint[]))
SELECT DISTINCT job_id FROM gone;

-- outdated_attempts --
SELECT run_id, attempt, fence, output IS NOT NULL OR reason = 'lost' FROM attempts WHERE run_id = ANY($1::bigint[]);

-- census --
-- Big tables are estimated: a count of a million rows is not worth a glance at a dashboard.
SELECT
  (SELECT CASE WHEN reltuples > 50000 THEN reltuples::bigint ELSE (SELECT count(*) FROM jobs WHERE deleted_at IS NULL)
          END FROM pg_class WHERE oid = 'jobs'::regclass),
  (SELECT CASE WHEN reltuples > 50000 THEN reltuples::bigint ELSE (SELECT count(*) FROM due) END
   FROM pg_class WHERE oid = 'due'::regclass),
  (SELECT next_at FROM due WHERE next_at < 9223372036854775807 ORDER BY next_at LIMIT 1),
  (SELECT min(due_at) FROM live WHERE state = 0);

-- bury_nodes --
-- Only what was seen to stand still, and only by whom the lead belongs to. Locked in order, as beats and claims do.
WITH x AS (
  SELECT v ->> 0 AS name, CAST(v ->> 1 AS bigint) AS beat, CAST(v ->> 2 AS bigint) AS session, v ->> 3 AS state
  FROM json_array_elements($1::json) AS t(v)
), o AS MATERIALIZED (
  SELECT name FROM nodes WHERE name = ANY(ARRAY(SELECT name FROM x)) ORDER BY name FOR NO KEY UPDATE
)
UPDATE nodes n SET state = 'gone', beat = n.beat + 1
FROM x WHERE n.name = ANY(ARRAY(SELECT name FROM o)) AND n.name = x.name AND n.beat = x.beat
  AND n.session = x.session AND n.state = x.state
  AND EXISTS (SELECT 1 FROM leases WHERE name = $2 AND owner = $3 AND term = $4 FOR SHARE) RETURNING n.name;

-- open_lines --
-- Locked in order, as beats and claims lock them.
WITH x AS (
  SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS t(name, identity, via, line)
), o AS MATERIALIZED (
  SELECT name FROM nodes WHERE name = ANY($1::text[]) ORDER BY name FOR NO KEY UPDATE
), u AS (
  UPDATE nodes n SET via = x.via, line = x.line, session = n.session + 1
  FROM x WHERE n.name = ANY(ARRAY(SELECT name FROM o)) AND n.name = x.name AND (n.identity = x.identity OR n.state = 'gone')
  RETURNING n.name, n.session
)
SELECT name, session FROM u UNION ALL SELECT name, NULL FROM o WHERE name NOT IN (SELECT name FROM u);

-- beat --
-- Many at once; their rows are locked in order, as claims lock them. Rows of (number, 0, beat, wanted, [count, digest])
-- for each that beat, (number, run, fence) for what it shall stop, (number, -1, session, state) for those that could not.
WITH x AS MATERIALIZED (
  SELECT * FROM unnest($1::text[], $2::int[], $3::bigint[], $4::bool[])
    WITH ORDINALITY AS t(name, busy, session, tells, number)
), o AS MATERIALIZED (
  SELECT name FROM nodes WHERE name = ANY($1::text[]) ORDER BY name FOR NO KEY UPDATE
), b AS (
  UPDATE nodes n SET beat = n.beat + 1, busy = x.busy,
    heartbeat_at = COALESCE($5::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
  FROM x WHERE n.name = ANY(ARRAY(SELECT name FROM o)) AND n.name = x.name AND n.state IN ('live', 'draining')
    AND (x.session IS NULL OR n.session = x.session)
  RETURNING x.number, n.name, n.beat, n.wanted
), h AS MATERIALIZED (
  SELECT node, ARRAY[count(*), sum({digest})::bigint] AS held FROM live
  WHERE state = 1 AND node = ANY(ARRAY(SELECT name FROM x WHERE tells)) GROUP BY node
)
SELECT b.number, 0::bigint, b.beat, b.wanted, CASE WHEN x.tells THEN COALESCE(h.held, ARRAY[0, 0]::bigint[]) END
FROM b JOIN x USING (number) LEFT JOIN h ON h.node = b.name
UNION ALL SELECT x.number, l.id, l.fence, NULL, NULL FROM live l JOIN x ON x.name = l.node
WHERE l.cancel AND l.node = ANY($1::text[]) AND l.state = 1
UNION ALL SELECT x.number, -1, n.session, n.state, NULL FROM nodes n JOIN x USING (name)
WHERE n.name = ANY($1::text[]) AND x.number NOT IN (SELECT number FROM b);

-- beat_alone --
-- Without a look at the live runs, for when they are locked.
WITH x AS MATERIALIZED (
  SELECT * FROM unnest($1::text[], $2::int[], $3::bigint[]) WITH ORDINALITY AS t(name, busy, session, number)
), o AS MATERIALIZED (
  SELECT name FROM nodes WHERE name = ANY($1::text[]) ORDER BY name FOR NO KEY UPDATE
), b AS (
  UPDATE nodes n SET beat = n.beat + 1, busy = x.busy,
    heartbeat_at = COALESCE($4::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
  FROM x WHERE n.name = ANY(ARRAY(SELECT name FROM o)) AND n.name = x.name AND n.state IN ('live', 'draining')
    AND (x.session IS NULL OR n.session = x.session)
  RETURNING x.number, n.beat, n.wanted
)
SELECT number, 0::bigint, beat, wanted, NULL::bigint[] FROM b
UNION ALL SELECT x.number, -1, n.session, n.state, NULL FROM nodes n JOIN x USING (name)
WHERE n.name = ANY($1::text[]) AND x.number NOT IN (SELECT number FROM b);

-- assign_segments --
-- Only while the leader's lease is held under its term.
INSERT INTO segments (segment, owner, term)
SELECT m.segment, m.owner, 1 FROM unnest($1::smallint[], $2::text[]) AS m(segment, owner)
WHERE EXISTS (SELECT 1 FROM leases WHERE name = $3 AND owner = $4 AND term = $5 FOR SHARE)
ON CONFLICT (segment) DO UPDATE SET owner = excluded.owner, term = segments.term + 1
RETURNING segment;

-- get_sealed --
SELECT name, sealed FROM secrets WHERE org = $1 AND name = ANY($2::text[]);

-- hold_locks --
-- The statements that follow see every claim that belongs to a lock: two that take at once could overlook each other's.
LOCK TABLE locks IN SHARE ROW EXCLUSIVE MODE;

-- take_locks --
-- A lock is void when its run is not running under its fence any more; an older run that waits for it comes first.
INSERT INTO locks (name, run_id, fence)
SELECT v ->> 0, CAST(v ->> 1 AS bigint), CAST(v ->> 2 AS integer) FROM json_array_elements($1::json) AS t(v)
ON CONFLICT (name) DO UPDATE SET run_id = excluded.run_id, fence = excluded.fence
WHERE NOT EXISTS (SELECT 1 FROM live l WHERE l.id = locks.run_id AND l.fence = locks.fence AND l.state = 1)
  AND NOT EXISTS (SELECT 1 FROM live w WHERE w.state = 2 AND w.waits_for = locks.run_id AND w.id < excluded.run_id)
RETURNING name, run_id;

-- lock_holders --
SELECT name, run_id FROM locks WHERE name = ANY($1::text[]);

-- note_progress --
UPDATE live r SET note = v ->> 2 FROM json_array_elements($1::json) AS t(v)
WHERE r.id = CAST(v ->> 0 AS bigint) AND r.fence = CAST(v ->> 1 AS integer) AND r.state = 1
  AND ($2::bigint IS NULL OR $2 = (SELECT n.session FROM nodes n WHERE n.name = r.node));
