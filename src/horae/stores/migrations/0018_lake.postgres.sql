-- before the code: organisations of tokens; and the tables of a source document as its clients write and read them.

ALTER TABLE tokens ADD COLUMN org integer NOT NULL DEFAULT 1;

-- As before, but that until there is a run, or one that has ended, what was sent with the job counts; that calendar
-- periods have a length too (a month has 30 days); and that history tells what went wrong.
CREATE OR REPLACE VIEW JobStatus AS
SELECT s.job_id,
  CASE WHEN s.live_id > COALESCE(s.ended_id, 0) THEN 'Syncing'
    WHEN s.ended_id IS NULL THEN CASE
      WHEN s.said IN ('Synced', 'Finished') THEN 'Synced' WHEN s.said = 'Error' THEN 'Error'
      WHEN s.said IN ('Queued', 'Syncing', 'Compiling', 'Running') THEN 'Syncing'
      WHEN s.said IN ('Killed', 'Terminated', 'Canceled', 'Unknown') THEN 'Unknown' ELSE 'Init' END
    ELSE (SELECT CASE WHEN state = 10 THEN 'Synced' WHEN state IN (11, 12) THEN 'Error' ELSE 'Unknown' END
          FROM history WHERE id = s.ended_id) END AS current_status
FROM (
  SELECT j.id AS job_id, l.live_id, CAST(j.annotations AS json) #>> '{lake,current_status}' AS said,
    (SELECT max(newest) FROM (
      SELECT (SELECT max(r.id) FROM history r WHERE r.job_id = j.id AND r.state = 10) AS newest
      UNION ALL SELECT (SELECT max(r.id) FROM history r WHERE r.job_id = j.id AND r.state = 11)
      UNION ALL SELECT (SELECT max(r.id) FROM history r WHERE r.job_id = j.id AND r.state = 12)
      UNION ALL SELECT (SELECT max(r.id) FROM history r WHERE r.job_id = j.id AND r.state = 13)) AS ends) AS ended_id
  FROM jobs j LEFT JOIN (SELECT job_id, max(id) AS live_id FROM live GROUP BY job_id) AS l ON l.job_id = j.id
  WHERE j.deleted_at IS NULL) AS s;

CREATE OR REPLACE VIEW JobHistory AS
SELECT h.job_id, COALESCE(h.started_at, h.finished_at) / 1000 AS sync_time,
  CAST(json_build_object(
    'state', CASE h.state WHEN 10 THEN 'succeeded' WHEN 11 THEN 'failed' WHEN 12 THEN 'timed_out' ELSE 'cancelled' END,
    'duration_ms', (h.finished_at - h.started_at) / 1000, 'result', CAST(h.result AS json),
    'error', CASE WHEN h.state > 10 THEN COALESCE(NULLIF(h.message, ''), NULLIF(h.reason, '')) END
  ) AS text) AS stats_data
FROM history h JOIN jobs j ON j.id = h.job_id WHERE j.deleted_at IS NULL AND h.state < 14;

-- What was sent is read off the text, too: annotations may hold anything.
CREATE OR REPLACE VIEW JobScheduler AS
SELECT s.job_id, COALESCE(h.finished_at / 1000, NULLIF(CAST(s.sent_time AS bigint), 0)) AS last_time_sync,
  CASE
    WHEN s.every IS NOT NULL THEN trim_scale(
      COALESCE(CAST(substring(s.every FROM '([0-9]+)d') AS numeric), 0) * 1440
      + COALESCE(CAST(substring(s.every FROM '([0-9]+)h') AS numeric), 0) * 60
      + COALESCE(CAST(substring(s.every FROM '([0-9]+)m(?!s)') AS numeric), 0)
      + round(COALESCE(CAST(substring(s.every FROM '([0-9]+)s') AS numeric), 0) / 60
              + COALESCE(CAST(substring(s.every FROM '([0-9]+)ms') AS numeric), 0) / 60000, 6))
    WHEN s.unit IS NOT NULL THEN CAST(COALESCE(s.count, '1') AS numeric) * CASE s.unit WHEN 'minute' THEN 1
      WHEN 'hour' THEN 60 WHEN 'day' THEN 1440 WHEN 'week' THEN 10080 WHEN 'month' THEN 43200 ELSE 525600 END
    ELSE NULLIF(CAST(s.sent_interval AS numeric), 0)
  END AS sync_internal,
  COALESCE((SELECT c.value FROM cursors c WHERE c.job_id = s.job_id),
    (SELECT g.result FROM history g WHERE g.job_id = s.job_id AND g.state = 10 ORDER BY g.id DESC LIMIT 1),
    '{"value":' || s.sent_data || '}') AS sync_data,
  CASE WHEN h.state IS NULL THEN CASE
      WHEN s.said IN ('Synced', 'Finished') THEN 'Synced' WHEN s.said = 'Error' THEN 'Error'
      WHEN s.said IN ('Queued', 'Syncing', 'Compiling', 'Running') THEN 'Syncing'
      WHEN s.said IN ('Killed', 'Terminated', 'Canceled', 'Unknown') THEN 'Unknown' ELSE 'Init' END
    WHEN h.state = 10 THEN 'Synced' WHEN h.state IN (11, 12) THEN 'Error' ELSE 'Unknown' END AS last_sync_status
FROM (
  SELECT j.id AS job_id, CAST(j.annotations AS json) #>> '{lake,last_status}' AS said,
    substring(CAST(j.annotations AS json) #>> '{lake,last_run_time}' FROM '^[0-9]{1,18}$') AS sent_time,
    substring(CAST(j.annotations AS json) #>> '{lake,sync_interval_in_mn}' FROM '^[0-9]{1,9}$') AS sent_interval,
    CASE WHEN j.kind = 'sync' THEN CAST(CAST(j.spec AS json) -> 'begin' AS text) END AS sent_data,
    (SELECT max(newest) FROM (
      SELECT (SELECT max(r.id) FROM history r WHERE r.job_id = j.id AND r.state = 10) AS newest
      UNION ALL SELECT (SELECT max(r.id) FROM history r WHERE r.job_id = j.id AND r.state = 11)
      UNION ALL SELECT (SELECT max(r.id) FROM history r WHERE r.job_id = j.id AND r.state = 12)
      UNION ALL SELECT (SELECT max(r.id) FROM history r WHERE r.job_id = j.id AND r.state = 13)) AS ends) AS ended_id,
    CASE WHEN json_array_length(CAST(j.triggers AS json)) = 1
      THEN substring(j.triggers FROM '^\[\{"id":[0-9]+,"schedule":\{[^{}]*"every":"([0-9a-z]+)"') END AS every,
    CASE WHEN json_array_length(CAST(j.triggers AS json)) = 1
      THEN substring(j.triggers FROM '^\[\{"id":[0-9]+,"schedule":\{[^{}]*"period":\{"unit":"([a-z]+)"') END AS unit,
    substring(j.triggers FROM '^\[\{"id":[0-9]+,"schedule":\{[^{}]*"period":\{[^{}]*"every":([0-9]+)') AS count
  FROM jobs j WHERE j.deleted_at IS NULL) AS s
LEFT JOIN history h ON h.id = s.ended_id;

-- A name without quotes is in lower case here; one with them is not.
CREATE VIEW "JobInfo" AS SELECT * FROM JobInfo;
CREATE VIEW "JobScheduler" AS SELECT * FROM JobScheduler;
CREATE VIEW "JobHistory" AS SELECT * FROM JobHistory;
CREATE VIEW "JobStatus" AS SELECT * FROM JobStatus;
