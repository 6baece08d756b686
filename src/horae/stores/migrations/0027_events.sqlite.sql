-- before the code: every transition as an event, written by the statement that did the work.

-- What was true then. `ids` is a run, a trigger or a segment, `jobs` its job or that of which it is told; `fence` is that
-- of the run, or the version of the job. A trigger here sees one row at a time, so an event is a row: small, and in the
-- same transaction. Segments alone are told together, as a JSON array.
CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  at INTEGER NOT NULL,
  fence INTEGER,
  state INTEGER,
  kind TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT '',
  name TEXT,
  ids ANY,
  jobs INTEGER
) STRICT;
CREATE INDEX events_at ON events (at);

-- How far each of those who read on their own account has come.
CREATE TABLE event_readers (name TEXT PRIMARY KEY, place TEXT NOT NULL) STRICT;

CREATE TRIGGER live_made AFTER INSERT ON live
BEGIN
  INSERT INTO events (at, kind, state, reason, fence, ids, jobs)
  VALUES (CASE new.state WHEN 0 THEN max(new.created_at, new.due_at) ELSE new.created_at END,
    CASE new.state WHEN 0 THEN 'run.queued' WHEN 1 THEN 'run.started' ELSE 'run.blocked' END, new.state, new.reason, new.fence,
    new.id, new.job_id);
END;

CREATE TRIGGER live_moved AFTER UPDATE OF state, reason, fence, cancel ON live
WHEN old.state <> new.state OR old.reason <> new.reason AND new.state <> 1 OR old.fence <> new.fence OR old.cancel <> new.cancel
BEGIN
  INSERT INTO events (at, kind, state, reason, fence, ids, jobs)
  VALUES (
    COALESCE(CASE WHEN new.state = 1 AND new.cancel = old.cancel THEN new.started_at END,
      CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000),
    CASE WHEN new.cancel AND NOT old.cancel THEN 'run.cancelling'
      WHEN new.state = 1 THEN 'run.started'
      WHEN old.state = 1 AND new.attempt = old.attempt AND new.reason NOT IN ('children', 'signal', 'snoozed') THEN 'run.retrying'
      WHEN new.state = 0 THEN 'run.queued' ELSE 'run.blocked' END,
    new.state, new.reason, new.fence, new.id, new.job_id);
END;

CREATE TRIGGER history_ended AFTER INSERT ON history
BEGIN
  INSERT INTO events (at, kind, state, reason, fence, ids, jobs)
  VALUES (new.finished_at, 'run.finished', new.state, new.reason, new.fence, new.id, new.job_id);
END;

-- Tasks of workflows are no jobs of their own.
CREATE TRIGGER jobs_submitted AFTER INSERT ON jobs WHEN new.part_of IS NULL
BEGIN
  INSERT INTO events (at, kind, fence, jobs) VALUES (new.created_at, 'job.submitted', new.version, new.id);
END;

CREATE TRIGGER jobs_changed AFTER UPDATE ON jobs WHEN new.part_of IS NULL AND old.version <> new.version
BEGIN
  INSERT INTO events (at, kind, fence, jobs)
  SELECT new.updated_at, 'job.changed', new.version, new.id
  WHERE old.org <> new.org OR old.owner <> new.owner OR old.name <> new.name OR old.key IS NOT new.key OR old.kind <> new.kind
    OR old.spec <> new.spec OR old.policy <> new.policy;
  INSERT INTO events (at, kind, fence, jobs)
  SELECT new.updated_at, CASE WHEN new.paused THEN 'job.paused' ELSE 'job.resumed' END, new.version, new.id
  WHERE old.paused <> new.paused;
  INSERT INTO events (at, kind, fence, jobs)
  SELECT new.updated_at, 'job.deleted', new.version, new.id WHERE new.deleted_at IS NOT NULL AND old.deleted_at IS NULL;
END;

CREATE TRIGGER nodes_joined AFTER INSERT ON nodes
BEGIN
  INSERT INTO events (at, kind, name) VALUES (new.heartbeat_at, CASE new.state WHEN 'live' THEN 'node.joined' ELSE 'node.' || new.state END, new.name);
END;

CREATE TRIGGER nodes_changed AFTER UPDATE OF state, started_at, wanted ON nodes
WHEN old.state <> new.state OR old.started_at <> new.started_at OR old.wanted <> new.wanted
BEGIN
  INSERT INTO events (at, kind, reason, name)
  SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000,
    CASE WHEN w.is_wish THEN 'node.wanted' WHEN new.state = 'live' THEN 'node.joined' ELSE 'node.' || new.state END,
    CASE WHEN w.is_wish THEN new.wanted ELSE '' END, new.name
  FROM (SELECT old.state = new.state AND old.started_at = new.started_at AS is_wish) AS w;
END;

CREATE TRIGGER queues_created AFTER INSERT ON queues
BEGIN
  INSERT INTO events (at, kind, fence, reason, name) VALUES (new.updated_at, 'queue.created', new.version, new.state, new.name);
END;
CREATE TRIGGER queues_changed AFTER UPDATE ON queues
BEGIN
  INSERT INTO events (at, kind, fence, reason, name)
  VALUES (new.updated_at, CASE WHEN old.state = new.state THEN 'queue.changed' WHEN new.state = 'paused' THEN 'queue.paused'
    WHEN old.state = 'paused' THEN 'queue.resumed' ELSE 'queue.changed' END, new.version, new.state, new.name);
END;
CREATE TRIGGER queues_deleted AFTER DELETE ON queues
BEGIN
  INSERT INTO events (at, kind, fence, reason, name)
  VALUES (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000, 'queue.deleted', old.version, old.state, old.name);
END;

-- How far durations were learned moves on every minute, and is nobody's setting.
CREATE TRIGGER settings_kept AFTER INSERT ON settings WHEN new.name <> 'durations'
BEGIN
  INSERT INTO events (at, kind, name)
  VALUES (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000, 'setting.changed', new.name);
END;
CREATE TRIGGER settings_changed AFTER UPDATE ON settings WHEN old.value <> new.value AND new.name <> 'durations'
BEGIN
  INSERT INTO events (at, kind, name)
  VALUES (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000, 'setting.changed', new.name);
END;

-- Ends that nobody was told of yet are events like all others.
INSERT INTO events (at, kind, state, reason, fence, ids, jobs)
SELECT h.finished_at, 'run.finished', h.state, h.reason, h.fence, h.id, h.job_id
FROM untold u JOIN history h ON h.id = u.run_id ORDER BY h.id;
-- Where there is a broker, all of them are for it.
INSERT INTO event_readers (name, place)
SELECT 'nats', '0.0.0' FROM sqlite_master WHERE type = 'trigger' AND name = 'history_untold';
DROP TRIGGER IF EXISTS history_untold;
DROP TABLE untold;
