-- before the code: of what somebody is to be told, what is going on, and what was told.

CREATE TABLE alert_channels (
  org INTEGER NOT NULL,
  name TEXT NOT NULL,
  document TEXT NOT NULL,
  version INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (org, name)
) STRICT, WITHOUT ROWID;

-- With how often each has told something: whoever tells counts on from what it saw, so of two leaders one tells.
CREATE TABLE alert_rules (
  org INTEGER NOT NULL,
  name TEXT NOT NULL,
  document TEXT NOT NULL,
  version INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  messages INTEGER NOT NULL DEFAULT 0,
  told_at INTEGER,
  PRIMARY KEY (org, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE alerts (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  org INTEGER NOT NULL,
  rule TEXT NOT NULL,
  subject TEXT NOT NULL,
  name TEXT NOT NULL,
  state TEXT NOT NULL,
  streak INTEGER NOT NULL,
  count INTEGER NOT NULL,
  since_at INTEGER NOT NULL,
  last_at INTEGER NOT NULL,
  text TEXT NOT NULL,
  run_id INTEGER,
  changed_at INTEGER,
  told_count INTEGER NOT NULL,
  told_at INTEGER,
  remind_at INTEGER,
  acked_at INTEGER,
  acked_by TEXT NOT NULL,
  stands INTEGER NOT NULL,
  UNIQUE (org, rule, subject)
) STRICT;
CREATE INDEX alerts_subject ON alerts (subject);
CREATE INDEX alerts_changed ON alerts (org, rule) WHERE changed_at IS NOT NULL;

CREATE TABLE alert_deliveries (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  org INTEGER NOT NULL,
  rule TEXT NOT NULL,
  number INTEGER NOT NULL,
  channel TEXT NOT NULL,
  message TEXT NOT NULL,
  state TEXT NOT NULL,
  tries INTEGER NOT NULL,
  next_at INTEGER NOT NULL,
  made_at INTEGER NOT NULL,
  sent_at INTEGER,
  error TEXT NOT NULL,
  UNIQUE (org, rule, number, channel)
) STRICT;
CREATE INDEX alert_deliveries_next ON alert_deliveries (next_at) WHERE state = 'waiting';

-- How full the disk of each server is, written while a rule asks for it.
CREATE TABLE alert_disks (node TEXT PRIMARY KEY, used REAL NOT NULL, at INTEGER NOT NULL) STRICT, WITHOUT ROWID;

CREATE TRIGGER alerts_made AFTER INSERT ON alerts WHEN new.state = 'open'
BEGIN
  INSERT INTO events (at, kind, name, jobs) VALUES (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000,
    'alert.opened', new.rule || '/' || new.subject,
    CASE WHEN new.subject LIKE 'job:%' THEN CAST(substr(new.subject, 5) AS INTEGER) END);
END;
CREATE TRIGGER alerts_moved AFTER UPDATE OF state ON alerts
WHEN old.state <> new.state AND (new.state = 'open' OR old.state = 'open')
BEGIN
  INSERT INTO events (at, kind, name, jobs) VALUES (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000,
    CASE new.state WHEN 'open' THEN 'alert.opened' ELSE 'alert.closed' END, new.rule || '/' || new.subject,
    CASE WHEN new.subject LIKE 'job:%' THEN CAST(substr(new.subject, 5) AS INTEGER) END);
END;
CREATE TRIGGER alerts_dropped AFTER DELETE ON alerts WHEN old.state = 'open'
BEGIN
  INSERT INTO events (at, kind, name, jobs) VALUES (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000,
    'alert.closed', old.rule || '/' || old.subject,
    CASE WHEN old.subject LIKE 'job:%' THEN CAST(substr(old.subject, 5) AS INTEGER) END);
END;
