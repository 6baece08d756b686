-- load_due [look] --
-- One index range for all segments, because a scheduler owns a good share of them: one range for each would read a
-- hundred times the limit. The lower bound keeps the scan clear of rows that fired long ago.
SELECT next_at, trigger_id, version, segment, reserved FROM due
WHERE (next_at, trigger_id) > ($2::bigint, $3::bigint) AND next_at < $4 AND segment = ANY($1::smallint[])
ORDER BY next_at, trigger_id LIMIT $5;

-- load_definitions [look] --
SELECT d.trigger_id, d.version, d.job_id,
  (SELECT ARRAY[j.triggers, j.kind, j.policy, j.owner, j.org::text, j.annotations,
     CASE WHEN j.policy LIKE '%"data.%' THEN j.spec END, j.followed::text] FROM jobs j WHERE j.id = d.job_id)
FROM due d WHERE d.trigger_id = ANY($1::bigint[]);

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
FROM due d WHERE d.trigger_id = ANY($1::bigint[]);

-- fire --
-- Advance by compare-and-set, and make the runs of those that held. `forbid` runs that find the gate taken become
-- history at once; those of `queue` and `replace` are left to the caller.
-- Kind, queue and priority are those of the share ($22 …) to which a run belongs, the first unless it is said. Shares
-- are locked in one order, before anything else, and move on with the runs that were made.
-- Numbers come as the text of an array (stores.postgres.arrays), which is read once.
-- Where all are of different jobs ($30), gates are looked at first: an insert that may meet another writes a record more
-- for each run. Whoever takes a gate meanwhile makes it fail, and it is tried again the other way.
-- Then ids are given, and runs are written, in the order of the passes: both indexes grow at their end, whose pages split
-- when they are full, and not in the middle. Of one job, the earlier moment is always the first.
WITH s AS MATERIALIZED (
  SELECT array_agg(GREATEST(g.now_at,
    (SELECT h.pass FROM shares h WHERE h.kind = g.kind AND h.queue = g.queue AND h.priority = g.priority AND h.key = g.key
     FOR UPDATE),
    (SELECT h.pass FROM shares h WHERE h.kind = g.kind AND h.queue = g.queue AND h.priority = g.priority AND h.key = '')
     - g.step
  )) AS at
  FROM unnest($22::text[], $23::smallint[], $24::smallint[], $25::text[], $26::bigint[], $27::bigint[])
    AS g(kind, queue, priority, key, step, now_at)
), v AS MATERIALIZED (
  SELECT trigger_id, segment, version, cur_at, t.next_at, t.last_at, COALESCE(due_at, cur_at) AS due_at,
    unborn IS NULL AS born, COALESCE(overlap, 0::smallint) AS overlap, start_by, data, needs, demand, followed, depends, reserve,
    COALESCE(newest, cur_at) AS newest, COALESCE(reserved, nextval('run_id')) AS run_id, share, pass
  FROM (SELECT * FROM (SELECT *, COALESCE(share_or_first, 1) AS share, (SELECT at FROM s)[COALESCE(share_or_first, 1)]
      + COALESCE(nth, number) * ($26::bigint[])[COALESCE(share_or_first, 1)] AS pass
  FROM unnest($2::text[], $3::text[], $4::text::bigint[], $5::text::smallint[], $6::text::int[], $7::text::bigint[],
              $8::text::bigint[], $9::text::bigint[], $10::text::bigint[], $11::text::bool[], $12::text::smallint[],
              $13::text::bigint[], $14::text::bigint[], $15::text::bool[], $16::text::bigint[], $17::text::bigint[],
              $18::text::bool[], $19::text::bool[], $20::text::int[], $21::text::int[])
    WITH ORDINALITY AS t(data, needs, trigger_id, segment, version, cur_at, next_at, last_at, due_at, unborn, overlap,
                         start_by, reserved, reserve, newest, demand, followed, depends, share_or_first, nth, number)
  ) AS p ORDER BY CASE WHEN $30::bool THEN pass END, number) AS t
), c AS (
  SELECT COALESCE($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), stale AS (
  SELECT s.segment FROM segments s JOIN unnest($28::text::smallint[], $29::text::bigint[]) AS g(segment, term) USING (segment)
  WHERE s.term <> g.term
), fired AS (
  UPDATE due d
  SET next_at = v.next_at, last_at = COALESCE(v.last_at, d.last_at), reserved = CASE WHEN v.reserve THEN v.run_id END
  FROM v
  WHERE d.trigger_id = ANY(ARRAY(SELECT trigger_id FROM v)) AND d.segment = v.segment AND d.next_at = v.cur_at
    AND d.trigger_id = v.trigger_id AND d.version = v.version AND v.newest <= (SELECT now FROM c)
    AND v.newest < v.next_at AND v.segment <> ALL (ARRAY(SELECT segment FROM stale))
  RETURNING d.job_id, v.*
), new AS (
  SELECT run_id, job_id, trigger_id, due_at, (SELECT now FROM c), CASE WHEN overlap <> 1 THEN job_id END AS gate, start_by,
    {waiting_state}, {waiting_reason}, ($24::smallint[])[share], overlap, ($22::text[])[share], needs::text[], data,
    ($23::smallint[])[share], pass, demand, followed, depends
  FROM fired WHERE born ORDER BY CASE WHEN NOT $30::bool THEN due_at END, run_id
), apart AS (
  INSERT INTO live (id, job_id, trigger_id, due_at, created_at, gate, start_by, state, reason, priority, overlap, kind,
                    needs, data, queue, pass, demand, followed, depends)
  SELECT * FROM new WHERE $30::bool AND (gate IS NULL OR (SELECT l.id FROM live l WHERE l.gate = new.gate) IS NULL)
  RETURNING id
), beside AS (
  INSERT INTO live (id, job_id, trigger_id, due_at, created_at, gate, start_by, state, reason, priority, overlap, kind,
                    needs, data, queue, pass, demand, followed, depends)
  SELECT * FROM new WHERE NOT $30::bool
  ON CONFLICT (gate) WHERE gate IS NOT NULL DO NOTHING
  RETURNING id, gate
), made AS (
  SELECT id, NULL::bigint AS gate FROM apart UNION ALL SELECT id, gate FROM beside
), moved AS (
  INSERT INTO shares (kind, queue, priority, key, pass)
  SELECT ($22::text[])[share] AS kind, ($23::smallint[])[share] AS queue, ($24::smallint[])[share] AS priority,
    ($25::text[])[share] AS key, max(pass)
  FROM fired WHERE (run_id IN (SELECT id FROM made)) IS TRUE GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
  ON CONFLICT (kind, queue, priority, key) DO UPDATE SET pass = GREATEST(shares.pass, excluded.pass)
), skipped AS (
  INSERT INTO history ({history_columns})
  SELECT run_id, job_id, trigger_id, due_at, (SELECT now FROM c), NULL, (SELECT now FROM c), NULL, 0, NULL, {skipped}, 0,
    ($24::smallint[])[share], 0, ($22::text[])[share], 'overlap', NULL,
    'another run of this job was live' || COALESCE(': run ' || COALESCE(m.id, (SELECT l.id FROM live l WHERE l.gate = fired.job_id)), ''), NULL, NULL, data,
    NULL, NULL, followed
  FROM fired LEFT JOIN made m ON m.gate = fired.job_id WHERE born AND overlap = 0 AND run_id NOT IN (SELECT id FROM made)
  RETURNING id
)
SELECT (SELECT array_agg(trigger_id) FROM fired), (SELECT array_agg(run_id) FROM fired),
       (SELECT array_agg(id) FROM made), (SELECT count(*) FROM skipped), (SELECT now FROM c),
       ARRAY(SELECT segment FROM stale);

-- passed --
-- Moments that never run, as history: skipped(misfire) or coalesced into a run.
INSERT INTO history ({history_columns})
SELECT nextval('run_id'), p.job_id, p.trigger_id, p.due_at, $1, NULL, $1, p.into_run_id, 0, NULL, p.state, 0,
  p.priority, 0, p.kind, p.reason, NULL, '', NULL, NULL, NULL, NULL, NULL, p.followed
FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::smallint[], $7::smallint[], $8::text[],
            $9::text[], $10::bool[])
  AS p(job_id, trigger_id, due_at, into_run_id, state, priority, kind, reason, followed);

-- lock_gate --
-- The run that holds a job's gate; locked, so that it cannot end before its successor is written.
SELECT id, state FROM live WHERE gate = $1 FOR UPDATE;

-- waiting_of_job --
SELECT id FROM live WHERE job_id = $1 AND state = {blocked} AND reason = 'overlap' ORDER BY id;

-- add_successor --
INSERT INTO live (id, job_id, trigger_id, due_at, created_at, gate, start_by, state, reason, priority, overlap, kind,
                  needs, data, pin, queue, pass, demand, parent_id, task, followed, resumes, depends)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13::text[], $14, $15, $16, $17, $18, $19, $20, $21, $22, $23);

-- next_pass --
-- Of one more run of a share.
INSERT INTO shares (kind, queue, priority, key, pass) VALUES ($1, $2, $3, $4, GREATEST($5, $6::bigint, (
  SELECT pass FROM shares WHERE kind = $1 AND queue = $2 AND priority = $3 AND key = '')))
ON CONFLICT (kind, queue, priority, key) DO UPDATE SET pass = GREATEST(shares.pass + $5, excluded.pass) RETURNING pass;

-- add_skipped --
INSERT INTO history ({history_columns})
VALUES ($1, $2, $3, $4, $5, NULL, $10, NULL, 0, NULL, {skipped}, 0, $6, 0, $7, 'overlap', NULL, $8, NULL, NULL, $9, $11, $12, $13);
