-- before the code: creates everything
CREATE TABLE ids (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO ids VALUES ('job', 0), ('trigger', 0), ('run', 0);

-- Cold: read by people and by the scheduler's cache, not written when a job fires.
-- A job and its triggers are one document, so one compare-and-set guards a change of either.
CREATE TABLE jobs (
  id INTEGER PRIMARY KEY,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  deleted_at INTEGER,
  org INTEGER NOT NULL,
  version INTEGER NOT NULL,
  segment INTEGER NOT NULL,
  paused INTEGER NOT NULL,
  owner TEXT NOT NULL,
  name TEXT NOT NULL,
  key TEXT,
  kind TEXT NOT NULL,
  spec TEXT NOT NULL,
  policy TEXT NOT NULL,
  triggers TEXT NOT NULL,
  annotations TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX jobs_key ON jobs (org, owner, key) WHERE key IS NOT NULL AND deleted_at IS NULL;
-- Serves the count of jobs: without it every look at the dashboard would read them all.
CREATE INDEX jobs_live ON jobs (org) WHERE deleted_at IS NULL;

-- Hot and narrow: one row per trigger. A parked trigger is due at the end of time.
CREATE TABLE due (
  trigger_id INTEGER PRIMARY KEY,
  next_at INTEGER NOT NULL,
  job_id INTEGER NOT NULL,
  last_at INTEGER,
  reserved INTEGER,
  version INTEGER NOT NULL,
  segment INTEGER NOT NULL
) STRICT;
CREATE INDEX due_next ON due (next_at);

-- Live runs only: in flight and waiting. `gate` is the job's id for all but `allow`: one live run a job.
CREATE TABLE live (
  id INTEGER PRIMARY KEY,
  job_id INTEGER NOT NULL,
  trigger_id INTEGER,
  due_at INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  gate INTEGER,
  started_at INTEGER,
  eligible_at INTEGER,
  start_by INTEGER,
  fence INTEGER NOT NULL DEFAULT 0,
  state INTEGER NOT NULL,
  attempt INTEGER NOT NULL DEFAULT 0,
  priority INTEGER NOT NULL,
  overlap INTEGER NOT NULL,
  lost INTEGER NOT NULL DEFAULT 0,
  phase INTEGER NOT NULL DEFAULT 1,
  cancel INTEGER NOT NULL DEFAULT 0,
  kind TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT '',
  node TEXT,
  pin TEXT,
  needs TEXT,
  data TEXT
) STRICT;
CREATE UNIQUE INDEX live_gate ON live (gate) WHERE gate IS NOT NULL;
CREATE INDEX live_queued ON live (kind, priority DESC, due_at, id) WHERE state = 0;
CREATE INDEX live_blocked ON live (job_id) WHERE state = 2;
CREATE INDEX live_eligible ON live (eligible_at) WHERE state = 2;
CREATE INDEX live_start_by ON live (start_by) WHERE start_by IS NOT NULL AND state <> 1;
CREATE INDEX live_needs ON live (id) WHERE needs IS NOT NULL AND state = 0;
CREATE INDEX live_cancel ON live (node) WHERE cancel;

-- The ledger: appended, never changed, dropped by age.
CREATE TABLE history (
  id INTEGER PRIMARY KEY,
  job_id INTEGER NOT NULL,
  trigger_id INTEGER,
  due_at INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  started_at INTEGER,
  finished_at INTEGER NOT NULL,
  into_run_id INTEGER,
  fence INTEGER NOT NULL,
  exit_code INTEGER,
  state INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  lost INTEGER NOT NULL,
  kind TEXT NOT NULL,
  reason TEXT NOT NULL,
  node TEXT,
  message TEXT NOT NULL,
  result TEXT,
  output TEXT,
  data TEXT
) STRICT;
CREATE INDEX history_job ON history (job_id, id);

CREATE TABLE attempts (
  run_id INTEGER NOT NULL,
  started_at INTEGER,
  finished_at INTEGER NOT NULL,
  fence INTEGER NOT NULL,
  exit_code INTEGER,
  attempt INTEGER NOT NULL,
  state INTEGER NOT NULL,
  reason TEXT NOT NULL,
  node TEXT,
  message TEXT NOT NULL,
  output TEXT,
  PRIMARY KEY (run_id, fence)
) STRICT;

CREATE TABLE nodes (
  name TEXT PRIMARY KEY,
  roles TEXT NOT NULL,
  kinds TEXT NOT NULL,
  labels TEXT NOT NULL,
  version TEXT NOT NULL,
  address TEXT NOT NULL,
  state TEXT NOT NULL,
  started_at INTEGER NOT NULL,
  heartbeat_at INTEGER NOT NULL,
  beat INTEGER NOT NULL,
  slots INTEGER NOT NULL,
  busy INTEGER NOT NULL
) STRICT;

CREATE TABLE leases (
  name TEXT PRIMARY KEY,
  owner TEXT NOT NULL,
  term INTEGER NOT NULL,
  beat INTEGER NOT NULL
) STRICT;

CREATE TABLE segments (
  segment INTEGER PRIMARY KEY,
  owner TEXT NOT NULL,
  term INTEGER NOT NULL
) STRICT;

CREATE TABLE idempotency (
  scope TEXT NOT NULL,
  key TEXT NOT NULL,
  digest TEXT NOT NULL,
  ids TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (scope, key)
) STRICT;
