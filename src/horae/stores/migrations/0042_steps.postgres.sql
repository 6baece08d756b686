-- before the code: an event of many runs says their numbers in half the bytes, and nobody packs these.

-- Eight bytes for each number were too many for a row, so PostgreSQL packed them: for a batch of a thousand runs, that took
-- longer than all else that is told of them. Now a number is a base, which is told once, and a step above it of 31 bits;
-- without a base it is the step alone. What concerns one thing alone, and what was told before, is in `ids` and `jobs`.
ALTER TABLE events ADD COLUMN id_base bigint, ADD COLUMN job_base bigint,
  ADD COLUMN id_steps integer[], ADD COLUMN job_steps integer[];
ALTER TABLE events ALTER COLUMN ids SET STORAGE EXTERNAL, ALTER COLUMN jobs SET STORAGE EXTERNAL,
  ALTER COLUMN id_steps SET STORAGE EXTERNAL, ALTER COLUMN job_steps SET STORAGE EXTERNAL;
ALTER TABLE events SET (toast_tuple_target = 8160);

CREATE OR REPLACE FUNCTION tell_made() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO events (stamp, at, kind, state, reason, fence, id_base, job_base, id_steps, job_steps)
  SELECT event_stamp(), max(CASE state WHEN 0 THEN GREATEST(created_at, due_at) ELSE created_at END),
    CASE state WHEN 0 THEN 'run.queued' WHEN 1 THEN 'run.started' ELSE 'run.blocked' END, state, reason, fence,
    NULLIF(id >> 31 << 31, 0), NULLIF(job_id >> 31 << 31, 0),
    array_agg((id & 2147483647)::integer), array_agg((job_id & 2147483647)::integer)
  FROM made GROUP BY state, reason, fence, id >> 31 << 31, job_id >> 31 << 31;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION tell_moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO events (stamp, at, kind, state, reason, fence, id_base, job_base, id_steps, job_steps)
  SELECT event_stamp(), COALESCE(max(at), event_moment()), kind, state, reason, fence,
    NULLIF(id >> 31 << 31, 0), NULLIF(job_id >> 31 << 31, 0),
    array_agg((id & 2147483647)::integer), array_agg((job_id & 2147483647)::integer)
  FROM (
    SELECT n.id, n.job_id, n.state, n.reason, n.fence, CASE n.state WHEN 1 THEN n.started_at END AS at,
      CASE WHEN n.cancel AND NOT o.cancel THEN 'run.cancelling'
        WHEN n.state = 1 THEN CASE WHEN o.state <> 1 OR o.fence <> n.fence THEN 'run.started' END
        WHEN o.state = 1 AND n.attempt = o.attempt AND n.reason NOT IN ('children', 'signal', 'snoozed') THEN 'run.retrying'
        WHEN n.state = 0 THEN 'run.queued' ELSE 'run.blocked' END AS kind
    FROM before o JOIN after n ON n.id = o.id
    WHERE o.state <> n.state OR o.reason <> n.reason OR o.fence <> n.fence OR o.cancel <> n.cancel) AS moved
  WHERE kind IS NOT NULL GROUP BY kind, state, reason, fence, id >> 31 << 31, job_id >> 31 << 31;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION tell_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO events (stamp, at, kind, state, reason, fence, id_base, job_base, id_steps, job_steps)
  SELECT event_stamp(), max(finished_at), 'run.finished', state, reason, fence,
    NULLIF(id >> 31 << 31, 0), NULLIF(job_id >> 31 << 31, 0),
    array_agg((id & 2147483647)::integer), array_agg((job_id & 2147483647)::integer)
  FROM ended GROUP BY state, reason, fence, id >> 31 << 31, job_id >> 31 << 31;
  RETURN NULL;
END $$;
