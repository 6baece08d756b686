-- before the code: how far syncs have come, how far a run is, and which run writes which destination.

-- One row a job, moved by the run that succeeded. What somebody set by hand counts against attempts that were under way
-- then: `past` is the newest of them. A row without a value says only that.
CREATE TABLE cursors (
  job_id INTEGER PRIMARY KEY,
  moved_at INTEGER NOT NULL,
  run_id INTEGER,
  past_run_id INTEGER NOT NULL DEFAULT 0,
  fence INTEGER NOT NULL DEFAULT 0,
  past_fence INTEGER NOT NULL DEFAULT 0,
  value TEXT
) STRICT;

-- A run that ends leaves its row behind, because ending is hot: a row counts only with its running run and fence.
CREATE TABLE locks (
  name TEXT PRIMARY KEY,
  run_id INTEGER NOT NULL,
  fence INTEGER NOT NULL
) STRICT;

-- While it runs: how far it is, as JSON. While it is blocked: why, in a sentence, and for which run it waits.
ALTER TABLE live ADD COLUMN waits_for INTEGER;
ALTER TABLE live ADD COLUMN note TEXT;

-- As before, but for sync_data: how far the syncs have come, where that is known.
DROP VIEW JobScheduler;
CREATE VIEW JobScheduler AS
WITH RECURSIVE schedules(job_id, schedule) AS (
  SELECT id, json_extract(triggers, '$[0].schedule') FROM jobs
  WHERE deleted_at IS NULL AND json_array_length(triggers) = 1
), steps(job_id, minutes, rest) AS (
  SELECT job_id, 0.0, replace(replace(json_extract(schedule, '$.every'), 'ms', 'x'), 'us', 'y') FROM schedules
  UNION ALL
  SELECT job_id,
    minutes + CAST(rest AS INTEGER) * CASE substr(ltrim(rest, '0123456789'), 1, 1)
      WHEN 'd' THEN 1440.0 WHEN 'h' THEN 60.0 WHEN 'm' THEN 1.0 WHEN 's' THEN 1 / 60.0 WHEN 'x' THEN 1 / 60000.0
      ELSE 0.0 END,
    substr(ltrim(rest, '0123456789'), 2)
  FROM steps WHERE rest <> ''
), intervals(job_id, minutes) AS (
  SELECT job_id, round(minutes, 6) FROM steps WHERE rest = ''
  UNION ALL
  SELECT job_id, COALESCE(json_extract(schedule, '$.period.every'), 1)
    * CASE json_extract(schedule, '$.period.unit') WHEN 'hour' THEN 60.0 ELSE 1.0 END
  FROM schedules WHERE json_extract(schedule, '$.period.unit') IN ('minute', 'hour')
)
SELECT s.job_id, h.finished_at / 1000 AS last_time_sync,
  CASE WHEN i.minutes = CAST(i.minutes AS INTEGER) THEN CAST(i.minutes AS INTEGER) ELSE i.minutes END AS sync_internal,
  COALESCE((SELECT c.value FROM cursors c WHERE c.job_id = s.job_id),
    (SELECT g.result FROM history g WHERE g.job_id = s.job_id AND g.state = 10 ORDER BY g.id DESC LIMIT 1)) AS sync_data,
  CASE WHEN h.state IS NULL THEN 'Init' WHEN h.state = 10 THEN 'Synced' WHEN h.state IN (11, 12) THEN 'Error'
    ELSE 'Unknown' END AS last_sync_status
FROM (
  SELECT j.id AS job_id,
    (SELECT r.id FROM history r WHERE r.job_id = j.id AND r.state < 14 ORDER BY r.id DESC LIMIT 1) AS ended_id
  FROM jobs j WHERE j.deleted_at IS NULL) AS s
LEFT JOIN history h ON h.id = s.ended_id
LEFT JOIN intervals i ON i.job_id = s.job_id;
