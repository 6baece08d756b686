-- before the code: roles that somebody has on some jobs, beyond the one in the organisation.
CREATE TABLE grants (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  org INTEGER NOT NULL,
  job_id INTEGER,
  created_at INTEGER NOT NULL,
  who TEXT NOT NULL,
  role TEXT NOT NULL,
  tag TEXT,
  queue TEXT,
  created_by TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX grants_by_who ON grants (org, who, coalesce(job_id, 0), coalesce(tag, ''), coalesce(queue, ''));
