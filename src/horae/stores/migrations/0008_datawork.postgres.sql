-- before the code: how far syncs have come, how far a run is, and which run writes which destination.

-- One row a job, moved by the run that succeeded. What somebody set by hand counts against attempts that were under way
-- then: `past` is the newest of them. A row without a value says only that.
CREATE TABLE cursors (
  job_id bigint PRIMARY KEY,
  moved_at bigint NOT NULL,
  run_id bigint,
  past_run_id bigint NOT NULL DEFAULT 0,
  fence integer NOT NULL DEFAULT 0,
  past_fence integer NOT NULL DEFAULT 0,
  value text
) WITH (fillfactor = 70);

-- A run that ends leaves its row behind, because ending is hot: a row counts only with its running run and fence.
CREATE TABLE locks (
  name text PRIMARY KEY,
  run_id bigint NOT NULL,
  fence integer NOT NULL
) WITH (fillfactor = 70);

-- While it runs: how far it is, as JSON. While it is blocked: why, in a sentence, and for which run it waits.
ALTER TABLE live ADD COLUMN waits_for bigint;
ALTER TABLE live ADD COLUMN note text;

-- As before, but for sync_data: how far the syncs have come, where that is known.
DROP VIEW JobScheduler;
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
  COALESCE((SELECT c.value FROM cursors c WHERE c.job_id = s.job_id),
    (SELECT g.result FROM history g WHERE g.job_id = s.job_id AND g.state = 10 ORDER BY g.id DESC LIMIT 1)) AS sync_data,
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
