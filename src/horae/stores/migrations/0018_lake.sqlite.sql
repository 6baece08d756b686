-- before the code: organisations of tokens; and the tables of a source document as its clients write and read them.

ALTER TABLE tokens ADD COLUMN org INTEGER NOT NULL DEFAULT 1;

-- As before, but that until there is a run, or one that has ended, what was sent with the job counts; that calendar
-- periods have a length too (a month has 30 days); and that history tells what went wrong.
DROP VIEW JobStatus;
CREATE VIEW JobStatus AS
SELECT s.job_id,
  CASE WHEN s.live_id > COALESCE(s.ended_id, 0) THEN 'Syncing'
    WHEN s.ended_id IS NULL THEN CASE
      WHEN s.said IN ('Synced', 'Finished') THEN 'Synced' WHEN s.said = 'Error' THEN 'Error'
      WHEN s.said IN ('Queued', 'Syncing', 'Compiling', 'Running') THEN 'Syncing'
      WHEN s.said IN ('Killed', 'Terminated', 'Canceled', 'Unknown') THEN 'Unknown' ELSE 'Init' END
    ELSE (SELECT CASE WHEN state = 10 THEN 'Synced' WHEN state IN (11, 12) THEN 'Error' ELSE 'Unknown' END
          FROM history WHERE id = s.ended_id) END AS current_status
FROM (
  SELECT j.id AS job_id, l.live_id, json_extract(j.annotations, '$.lake.current_status') AS said,
    (SELECT max(newest) FROM (
      SELECT (SELECT max(r.id) FROM history r WHERE r.job_id = j.id AND r.state = 10) AS newest
      UNION ALL SELECT (SELECT max(r.id) FROM history r WHERE r.job_id = j.id AND r.state = 11)
      UNION ALL SELECT (SELECT max(r.id) FROM history r WHERE r.job_id = j.id AND r.state = 12)
      UNION ALL SELECT (SELECT max(r.id) FROM history r WHERE r.job_id = j.id AND r.state = 13)) AS ends) AS ended_id
  FROM jobs j LEFT JOIN (SELECT job_id, max(id) AS live_id FROM live GROUP BY job_id) AS l ON l.job_id = j.id
  WHERE j.deleted_at IS NULL) AS s;

DROP VIEW JobHistory;
CREATE VIEW JobHistory AS
SELECT h.job_id, COALESCE(h.started_at, h.finished_at) / 1000 AS sync_time,
  json_object(
    'state', CASE h.state WHEN 10 THEN 'succeeded' WHEN 11 THEN 'failed' WHEN 12 THEN 'timed_out' ELSE 'cancelled' END,
    'duration_ms', (h.finished_at - h.started_at) / 1000, 'result', json(h.result),
    'error', CASE WHEN h.state > 10 THEN COALESCE(NULLIF(h.message, ''), NULLIF(h.reason, '')) END) AS stats_data
FROM history h JOIN jobs j ON j.id = h.job_id WHERE j.deleted_at IS NULL AND h.state < 14;

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
    * CASE json_extract(schedule, '$.period.unit') WHEN 'minute' THEN 1.0 WHEN 'hour' THEN 60.0 WHEN 'day' THEN 1440.0
      WHEN 'week' THEN 10080.0 WHEN 'month' THEN 43200.0 ELSE 525600.0 END
  FROM schedules WHERE json_extract(schedule, '$.period.unit') IS NOT NULL
)
SELECT s.job_id, COALESCE(h.finished_at / 1000, NULLIF(s.sent_time, 0)) AS last_time_sync,
  COALESCE(CASE WHEN i.minutes = CAST(i.minutes AS INTEGER) THEN CAST(i.minutes AS INTEGER) ELSE i.minutes END,
    NULLIF(s.sent_interval, 0)) AS sync_internal,
  COALESCE((SELECT c.value FROM cursors c WHERE c.job_id = s.job_id),
    (SELECT g.result FROM history g WHERE g.job_id = s.job_id AND g.state = 10 ORDER BY g.id DESC LIMIT 1),
    s.sent_data) AS sync_data,
  CASE WHEN h.state IS NULL THEN CASE
      WHEN s.said IN ('Synced', 'Finished') THEN 'Synced' WHEN s.said = 'Error' THEN 'Error'
      WHEN s.said IN ('Queued', 'Syncing', 'Compiling', 'Running') THEN 'Syncing'
      WHEN s.said IN ('Killed', 'Terminated', 'Canceled', 'Unknown') THEN 'Unknown' ELSE 'Init' END
    WHEN h.state = 10 THEN 'Synced' WHEN h.state IN (11, 12) THEN 'Error' ELSE 'Unknown' END AS last_sync_status
FROM (
  SELECT j.id AS job_id, json_extract(j.annotations, '$.lake.last_status') AS said,
    CASE WHEN json_type(j.annotations, '$.lake.last_run_time') = 'integer'
      THEN json_extract(j.annotations, '$.lake.last_run_time') END AS sent_time,
    CASE WHEN json_type(j.annotations, '$.lake.sync_interval_in_mn') = 'integer'
      THEN json_extract(j.annotations, '$.lake.sync_interval_in_mn') END AS sent_interval,
    CASE WHEN j.kind = 'sync' AND json_type(j.spec, '$.begin') IS NOT NULL
      THEN json_object('value', json_extract(j.spec, '$.begin')) END AS sent_data,
    (SELECT max(newest) FROM (
      SELECT (SELECT max(r.id) FROM history r WHERE r.job_id = j.id AND r.state = 10) AS newest
      UNION ALL SELECT (SELECT max(r.id) FROM history r WHERE r.job_id = j.id AND r.state = 11)
      UNION ALL SELECT (SELECT max(r.id) FROM history r WHERE r.job_id = j.id AND r.state = 12)
      UNION ALL SELECT (SELECT max(r.id) FROM history r WHERE r.job_id = j.id AND r.state = 13)) AS ends) AS ended_id
  FROM jobs j WHERE j.deleted_at IS NULL) AS s
LEFT JOIN history h ON h.id = s.ended_id
LEFT JOIN intervals i ON i.job_id = s.job_id;
