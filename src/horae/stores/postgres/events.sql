-- read_events --
-- Up to the lowest transaction that is open: whatever is written from now on comes after that.
-- Of many runs, numbers are told as steps above a base (migration 0042), and are looked for as such.
SELECT stamp, id, at, kind, state, reason, fence, name,
  COALESCE(ids, CASE WHEN id_base IS NULL THEN id_steps::bigint[] ELSE ARRAY(SELECT id_base + s FROM unnest(id_steps) AS s) END),
  COALESCE(jobs, CASE WHEN job_base IS NULL THEN job_steps::bigint[] ELSE ARRAY(SELECT job_base + s FROM unnest(job_steps) AS s) END),
  (SELECT dropped_stamp FROM event_base), (SELECT dropped_id FROM event_base)
FROM events
WHERE (stamp, id) >= ($1::bigint, $2::bigint)
  AND stamp < (SELECT base FROM event_base) + pg_snapshot_xmin(pg_current_snapshot())::text::bigint
  AND ($4::text[] IS NULL OR kind = ANY($4::text[]))
  AND ($5::bigint IS NULL OR $5::bigint = ANY(jobs)
    OR COALESCE(job_base, 0) = $5::bigint >> 31 << 31 AND ($5::bigint & 2147483647)::integer = ANY(job_steps))
  AND ($6::bigint IS NULL OR left(kind, 4) = 'run.' AND ($6::bigint = ANY(ids)
    OR COALESCE(id_base, 0) = $6::bigint >> 31 << 31 AND ($6::bigint & 2147483647)::integer = ANY(id_steps)))
ORDER BY stamp, id LIMIT $3;

-- last_event --
SELECT base + pg_snapshot_xmin(pg_current_snapshot())::text::bigint, 0::bigint FROM event_base;

-- find_events --
SELECT stamp, id FROM events WHERE at >= $1 ORDER BY stamp, id LIMIT 1;

-- drop_events --
-- That there are some no longer is noted in the same transaction.
WITH gone AS (
  DELETE FROM events WHERE (stamp, id) IN (SELECT stamp, id FROM events WHERE at < $1 ORDER BY stamp, id LIMIT $2)
  RETURNING stamp, id
), newest AS (
  SELECT stamp, id FROM gone ORDER BY stamp DESC, id DESC LIMIT 1
), noted AS (
  UPDATE event_base SET dropped_stamp = stamp, dropped_id = id FROM newest
  WHERE (stamp, id) > (dropped_stamp, dropped_id)
)
SELECT 1 FROM gone;

-- events_delay --
SELECT COALESCE(GREATEST(COALESCE($1::bigint, event_moment()) - min(at), 0) / 1000000.0, 0)::float8 FROM events
WHERE stamp >= (SELECT base FROM event_base) + pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

-- rebase_events --
-- Of a database that was restored on another server, whose transactions are numbered from lower on.
UPDATE event_base SET base = b.highest FROM (
  SELECT GREATEST((SELECT stamp FROM events ORDER BY stamp DESC LIMIT 1),
    (SELECT max(split_part(place, '.', 1)::bigint) FROM event_readers)) AS highest) AS b
WHERE b.highest > base + pg_snapshot_xmax(pg_current_snapshot())::text::bigint;

-- load_reader --
SELECT place FROM event_readers WHERE name = $1;

-- save_reader --
INSERT INTO event_readers (name, place) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET place = excluded.place;

-- tell_trigger --
INSERT INTO events (stamp, at, kind, fence, ids, jobs)
VALUES (event_stamp(), $1, $2, $3, ARRAY[$4::bigint], ARRAY[$5::bigint]);
