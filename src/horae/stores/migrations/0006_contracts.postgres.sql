-- before the code: runs on loan to workers outside Horae, segments of schedulers outside Horae, and sources of syncs.

-- A run that ends leaves its row behind, because ending is hot: a row counts only with its running run and fence.
CREATE TABLE loans (
  run_id bigint PRIMARY KEY,
  until_at bigint NOT NULL,
  fence integer NOT NULL,
  worker text NOT NULL,
  progress text
) WITH (fillfactor = 50);

CREATE TABLE taken_segments (
  segment smallint PRIMARY KEY,
  since_at bigint NOT NULL,
  worker text NOT NULL
);

CREATE TABLE sources (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  org integer NOT NULL,
  owner text NOT NULL,
  name text NOT NULL,
  kind text NOT NULL,
  config text NOT NULL
);

-- For SQL clients, in the words of a source document: times are milliseconds since 1970, deleted jobs are absent.
CREATE VIEW JobInfo AS
SELECT CASE WHEN kind = 'sync' THEN CAST(CAST(spec AS json) ->> 'source_id' AS bigint) END AS datasource_id,
  id AS job_id,
  CAST(json_build_object('name', name, 'kind', kind, 'spec', CAST(spec AS json)) AS text) AS job_data
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
  CAST(json_build_object(
    'state', CASE h.state WHEN 10 THEN 'succeeded' WHEN 11 THEN 'failed' WHEN 12 THEN 'timed_out' ELSE 'cancelled' END,
    'duration_ms', (h.finished_at - h.started_at) / 1000, 'result', CAST(h.result AS json)) AS text) AS stats_data
FROM history h JOIN jobs j ON j.id = h.job_id WHERE j.deleted_at IS NULL AND h.state < 14;

-- The interval is read off the text: the data of a trigger may hold what PostgreSQL cannot read as JSON.
CREATE VIEW JobScheduler AS
SELECT s.job_id, h.finished_at / 1000 AS last_time_sync,
  CASE
    WHEN s.every IS NOT NULL THEN trim_scale(
      COALESCE(CAST(substring(s.every FROM '([0-9]+)d') AS numeric), 0) * 1440
      + COALESCE(CAST(substring(s.every FROM '([0-9]+)h') AS numeric), 0) * 60
      + COALESCE(CAST(substring(s.every FROM '([0-9]+)m(?!s)') AS numeric), 0)
      + round(COALESCE(CAST(substring(s.every FROM '([0-9]+)s') AS numeric), 0) / 60
              + COALESCE(CAST(substring(s.every FROM '([0-9]+)ms') AS numeric), 0) / 60000, 6))
    WHEN s.unit IS NOT NULL THEN CAST(COALESCE(s.count, '1') AS numeric) * CASE s.unit WHEN 'hour' THEN 60 ELSE 1 END
  END AS sync_internal,
  (SELECT g.result FROM history g WHERE g.job_id = s.job_id AND g.state = 10 ORDER BY g.id DESC LIMIT 1) AS sync_data,
  CASE WHEN h.state IS NULL THEN 'Init' WHEN h.state = 10 THEN 'Synced' WHEN h.state IN (11, 12) THEN 'Error'
    ELSE 'Unknown' END AS last_sync_status
FROM (
  SELECT j.id AS job_id,
    (SELECT r.id FROM history r WHERE r.job_id = j.id AND r.state < 14 ORDER BY r.id DESC LIMIT 1) AS ended_id,
    CASE WHEN json_array_length(CAST(j.triggers AS json)) = 1
      THEN substring(j.triggers FROM '^\[\{"id":[0-9]+,"schedule":\{[^{}]*"every":"([0-9a-z]+)"') END AS every,
    CASE WHEN json_array_length(CAST(j.triggers AS json)) = 1
      THEN substring(j.triggers FROM '^\[\{"id":[0-9]+,"schedule":\{[^{}]*"period":\{"unit":"(minute|hour)"') END AS unit,
    substring(j.triggers FROM '^\[\{"id":[0-9]+,"schedule":\{[^{}]*"period":\{[^{}]*"every":([0-9]+)') AS count
  FROM jobs j WHERE j.deleted_at IS NULL) AS s
LEFT JOIN history h ON h.id = s.ended_id;
