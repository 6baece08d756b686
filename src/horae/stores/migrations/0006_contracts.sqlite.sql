-- before the code: runs on loan to workers outside Horae, segments of schedulers outside Horae, and sources of syncs.

-- A run that ends leaves its row behind, because ending is hot: a row counts only with its running run and fence.
CREATE TABLE loans (
  run_id INTEGER PRIMARY KEY,
  until_at INTEGER NOT NULL,
  fence INTEGER NOT NULL,
  worker TEXT NOT NULL,
  progress TEXT
) STRICT;

CREATE TABLE taken_segments (
  segment INTEGER PRIMARY KEY,
  since_at INTEGER NOT NULL,
  worker TEXT NOT NULL
) STRICT;

CREATE TABLE sources (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  org INTEGER NOT NULL,
  owner TEXT NOT NULL,
  name TEXT NOT NULL,
  kind TEXT NOT NULL,
  config TEXT NOT NULL
) STRICT;

-- For SQL clients, in the words of a source document: times are milliseconds since 1970, deleted jobs are absent.
CREATE VIEW JobInfo AS
SELECT CASE WHEN kind = 'sync' THEN json_extract(spec, '$.source_id') END AS datasource_id,
  id AS job_id,
  json_object('name', name, 'kind', kind, 'spec', json(spec)) AS job_data
FROM jobs WHERE deleted_at IS NULL;

-- The newest run that was neither skipped nor coalesced.
CREATE VIEW JobStatus AS
SELECT s.job_id,
  CASE WHEN s.live_id > COALESCE(s.ended_id, 0) THEN 'Syncing' WHEN s.ended_id IS NULL THEN 'Init'
    ELSE (SELECT CASE WHEN state = 10 THEN 'Synced' WHEN state IN (11, 12) THEN 'Error' ELSE 'Unknown' END
          FROM history WHERE id = s.ended_id) END AS current_status
FROM (
  SELECT j.id AS job_id, l.live_id,
    (SELECT h.id FROM history h WHERE h.job_id = j.id AND h.state < 14 ORDER BY h.id DESC LIMIT 1) AS ended_id
  FROM jobs j LEFT JOIN (SELECT job_id, max(id) AS live_id FROM live GROUP BY job_id) AS l ON l.job_id = j.id
  WHERE j.deleted_at IS NULL) AS s;

CREATE VIEW JobHistory AS
SELECT h.job_id, COALESCE(h.started_at, h.finished_at) / 1000 AS sync_time,
  json_object(
    'state', CASE h.state WHEN 10 THEN 'succeeded' WHEN 11 THEN 'failed' WHEN 12 THEN 'timed_out' ELSE 'cancelled' END,
    'duration_ms', (h.finished_at - h.started_at) / 1000, 'result', json(h.result)) AS stats_data
FROM history h JOIN jobs j ON j.id = h.job_id WHERE j.deleted_at IS NULL AND h.state < 14;

-- An interval is text such as 1h30m: a number and its unit at a time. Two letters become one first.
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
  (SELECT g.result FROM history g WHERE g.job_id = s.job_id AND g.state = 10 ORDER BY g.id DESC LIMIT 1) AS sync_data,
  CASE WHEN h.state IS NULL THEN 'Init' WHEN h.state = 10 THEN 'Synced' WHEN h.state IN (11, 12) THEN 'Error'
    ELSE 'Unknown' END AS last_sync_status
FROM (
  SELECT j.id AS job_id,
    (SELECT r.id FROM history r WHERE r.job_id = j.id AND r.state < 14 ORDER BY r.id DESC LIMIT 1) AS ended_id
  FROM jobs j WHERE j.deleted_at IS NULL) AS s
LEFT JOIN history h ON h.id = s.ended_id
LEFT JOIN intervals i ON i.job_id = s.job_id;
