-- before the code: indexes, so that lists stay fast however long the past is.

-- Of live runs: those that a node has, and those of a job that do not hold its gate. The gate has an index already.
CREATE INDEX live_node ON live (node) WHERE state = 1;
CREATE INDEX live_ungated ON live (job_id, id) WHERE gate IS NULL;

-- Of jobs: what lists ask for, newest first.
CREATE INDEX jobs_live ON jobs (org, id) WHERE deleted_at IS NULL;
CREATE INDEX jobs_named ON jobs (org, name, id) WHERE deleted_at IS NULL;
CREATE INDEX jobs_owner ON jobs (org, owner, id) WHERE deleted_at IS NULL;
CREATE INDEX jobs_kind ON jobs (org, kind, id) WHERE deleted_at IS NULL;
CREATE INDEX jobs_keyed ON jobs (org, key, id) WHERE key IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX jobs_paused ON jobs (org, id) WHERE paused AND deleted_at IS NULL;
CREATE INDEX jobs_deleted ON jobs (org, id) WHERE deleted_at IS NOT NULL;
-- Whom a job was made for, as the RPC contract asks; its start, as an index has a longest text.
CREATE INDEX jobs_made_for ON jobs
  (org, substr(coalesce(CAST(annotations AS jsonb) #>> '{rpc,user_id}', owner), 1, 64), id)
  WHERE deleted_at IS NULL;

CREATE INDEX attempts_lost ON attempts (finished_at, run_id) WHERE reason = 'lost';

-- Of ended runs: those of a job by state, and all that did not end as usual. The first takes the place of (job_id, id):
-- the newest of each state, and the last success above all, is one probe however many other runs came since.
-- A long history gets them while it is used, by whoever leads: an index is not made here in no time.
DO $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM history OFFSET 10000 LIMIT 1) THEN
    CREATE INDEX history_job_state ON history (job_id, state, id);
    CREATE INDEX history_state ON history (state, id) WHERE state > 10;
    DROP INDEX history_job;
  END IF;
END $$;

-- As before, by these indexes.
CREATE OR REPLACE VIEW JobStatus AS
SELECT s.job_id,
  CASE WHEN s.live_id > COALESCE(s.ended_id, 0) THEN 'Syncing' WHEN s.ended_id IS NULL THEN 'Init'
    ELSE (SELECT CASE WHEN state = 10 THEN 'Synced' WHEN state IN (11, 12) THEN 'Error' ELSE 'Unknown' END
          FROM history WHERE id = s.ended_id) END AS current_status
FROM (
  SELECT j.id AS job_id, l.live_id,
    (SELECT max(newest) FROM (
      SELECT (SELECT max(h.id) FROM history h WHERE h.job_id = j.id AND h.state = 10) AS newest
      UNION ALL SELECT (SELECT max(h.id) FROM history h WHERE h.job_id = j.id AND h.state = 11)
      UNION ALL SELECT (SELECT max(h.id) FROM history h WHERE h.job_id = j.id AND h.state = 12)
      UNION ALL SELECT (SELECT max(h.id) FROM history h WHERE h.job_id = j.id AND h.state = 13)) AS ends) AS ended_id
  FROM jobs j LEFT JOIN (SELECT job_id, max(id) AS live_id FROM live GROUP BY job_id) AS l ON l.job_id = j.id
  WHERE j.deleted_at IS NULL) AS s;

CREATE OR REPLACE VIEW JobScheduler AS
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
    (SELECT max(newest) FROM (
      SELECT (SELECT max(r.id) FROM history r WHERE r.job_id = j.id AND r.state = 10) AS newest
      UNION ALL SELECT (SELECT max(r.id) FROM history r WHERE r.job_id = j.id AND r.state = 11)
      UNION ALL SELECT (SELECT max(r.id) FROM history r WHERE r.job_id = j.id AND r.state = 12)
      UNION ALL SELECT (SELECT max(r.id) FROM history r WHERE r.job_id = j.id AND r.state = 13)) AS ends) AS ended_id,
    CASE WHEN json_array_length(CAST(j.triggers AS json)) = 1
      THEN substring(j.triggers FROM '^\[\{"id":[0-9]+,"schedule":\{[^{}]*"every":"([0-9a-z]+)"') END AS every,
    CASE WHEN json_array_length(CAST(j.triggers AS json)) = 1
      THEN substring(j.triggers FROM '^\[\{"id":[0-9]+,"schedule":\{[^{}]*"period":\{"unit":"(minute|hour)"') END AS unit,
    substring(j.triggers FROM '^\[\{"id":[0-9]+,"schedule":\{[^{}]*"period":\{[^{}]*"every":([0-9]+)') AS count
  FROM jobs j WHERE j.deleted_at IS NULL) AS s
LEFT JOIN history h ON h.id = s.ended_id;
