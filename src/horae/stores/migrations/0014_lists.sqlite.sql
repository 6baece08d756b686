-- before the code: indexes, so that lists stay fast however long the past is.

-- Of live runs: those that a node has, and those of a job that do not hold its gate. The gate has an index already.
CREATE INDEX live_node ON live (node) WHERE state = 1;
CREATE INDEX live_ungated ON live (job_id, id) WHERE gate IS NULL;

-- Of jobs: what lists ask for, newest first.
CREATE INDEX jobs_named ON jobs (org, name, id) WHERE deleted_at IS NULL;
CREATE INDEX jobs_owner ON jobs (org, owner, id) WHERE deleted_at IS NULL;
CREATE INDEX jobs_kind ON jobs (org, kind, id) WHERE deleted_at IS NULL;
CREATE INDEX jobs_keyed ON jobs (org, key, id) WHERE key IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX jobs_paused ON jobs (org, id) WHERE paused AND deleted_at IS NULL;
CREATE INDEX jobs_deleted ON jobs (org, id) WHERE deleted_at IS NOT NULL;
-- Whom a job was made for, as the RPC contract asks.
CREATE INDEX jobs_made_for ON jobs
  (org, substr(coalesce(CAST(json_extract(annotations, '$.rpc.user_id') AS text), owner), 1, 64), id)
  WHERE deleted_at IS NULL;

CREATE INDEX attempts_lost ON attempts (finished_at, run_id) WHERE reason = 'lost';

-- Of ended runs: those of a job by state, and all that did not end as usual. The first takes the place of (job_id, id):
-- the newest of each state, and the last success above all, is one probe however many other runs came since.
CREATE INDEX history_job_state ON history (job_id, state, id);
CREATE INDEX history_state ON history (state, id) WHERE state > 10;
DROP INDEX history_job;

-- As before, by these indexes.
DROP VIEW JobStatus;
CREATE VIEW JobStatus AS
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
    (SELECT max(newest) FROM (
      SELECT (SELECT max(r.id) FROM history r WHERE r.job_id = j.id AND r.state = 10) AS newest
      UNION ALL SELECT (SELECT max(r.id) FROM history r WHERE r.job_id = j.id AND r.state = 11)
      UNION ALL SELECT (SELECT max(r.id) FROM history r WHERE r.job_id = j.id AND r.state = 12)
      UNION ALL SELECT (SELECT max(r.id) FROM history r WHERE r.job_id = j.id AND r.state = 13)) AS ends) AS ended_id
  FROM jobs j WHERE j.deleted_at IS NULL) AS s
LEFT JOIN history h ON h.id = s.ended_id
LEFT JOIN intervals i ON i.job_id = s.job_id;
