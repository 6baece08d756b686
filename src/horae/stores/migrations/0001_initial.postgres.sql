-- before the code: creates everything
CREATE SEQUENCE job_id AS bigint;
CREATE SEQUENCE trigger_id AS bigint;
CREATE SEQUENCE run_id AS bigint;

-- Cold: read by people and by the scheduler's cache, not written when a job fires.
-- A job and its triggers are one document, so one compare-and-set guards a change of either.
CREATE TABLE jobs (
  id bigint PRIMARY KEY,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  deleted_at bigint,
  org integer NOT NULL,
  version integer NOT NULL,
  segment smallint NOT NULL,
  paused boolean NOT NULL,
  owner text NOT NULL,
  name text NOT NULL,
  key text,
  kind text NOT NULL,
  spec text NOT NULL,
  policy text NOT NULL,
  triggers text NOT NULL,
  annotations text NOT NULL
);
CREATE UNIQUE INDEX jobs_key ON jobs (org, owner, key) WHERE key IS NOT NULL AND deleted_at IS NULL;

-- Hot and narrow: one row per trigger. A parked trigger is due at the end of time.
CREATE TABLE due (
  next_at bigint NOT NULL,
  trigger_id bigint NOT NULL,
  job_id bigint NOT NULL,
  last_at bigint,
  reserved bigint,
  version integer NOT NULL,
  segment smallint NOT NULL,
  PRIMARY KEY (next_at, trigger_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX due_trigger ON due (trigger_id);

-- Live runs only: in flight and waiting. `gate` is the job's id for all but `allow`: one live run a job.
CREATE TABLE live (
  id bigint PRIMARY KEY,
  job_id bigint NOT NULL,
  trigger_id bigint,
  due_at bigint NOT NULL,
  created_at bigint NOT NULL,
  gate bigint,
  started_at bigint,
  eligible_at bigint,
  start_by bigint,
  fence integer NOT NULL DEFAULT 0,
  state smallint NOT NULL,
  attempt smallint NOT NULL DEFAULT 0,
  priority smallint NOT NULL,
  overlap smallint NOT NULL,
  lost smallint NOT NULL DEFAULT 0,
  phase smallint NOT NULL DEFAULT 1,
  cancel boolean NOT NULL DEFAULT false,
  kind text NOT NULL,
  reason text NOT NULL DEFAULT '',
  node text,
  pin text,
  needs text[],
  data text
) WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0,
        autovacuum_analyze_threshold = 20000);
CREATE UNIQUE INDEX live_gate ON live (gate) WHERE gate IS NOT NULL;
CREATE INDEX live_queued ON live (kind, priority DESC, due_at, id) WHERE state = 0;
CREATE INDEX live_blocked ON live (job_id) WHERE state = 2;
CREATE INDEX live_eligible ON live (eligible_at) WHERE state = 2;
CREATE INDEX live_start_by ON live (start_by) WHERE start_by IS NOT NULL AND state <> 1;
CREATE INDEX live_needs ON live (id) WHERE needs IS NOT NULL AND state = 0;
CREATE INDEX live_cancel ON live (node) WHERE cancel;

-- The ledger: appended, never changed, dropped by age.
CREATE TABLE history (
  id bigint PRIMARY KEY,
  job_id bigint NOT NULL,
  trigger_id bigint,
  due_at bigint NOT NULL,
  created_at bigint NOT NULL,
  started_at bigint,
  finished_at bigint NOT NULL,
  into_run_id bigint,
  fence integer NOT NULL,
  exit_code integer,
  state smallint NOT NULL,
  attempt smallint NOT NULL,
  priority smallint NOT NULL,
  lost smallint NOT NULL,
  kind text NOT NULL,
  reason text NOT NULL,
  node text,
  message text NOT NULL,
  result text,
  output text,
  data text
) WITH (autovacuum_vacuum_insert_scale_factor = 0.2);
CREATE INDEX history_job ON history (job_id, id);

CREATE TABLE attempts (
  run_id bigint NOT NULL,
  started_at bigint,
  finished_at bigint NOT NULL,
  fence integer NOT NULL,
  exit_code integer,
  attempt smallint NOT NULL,
  state smallint NOT NULL,
  reason text NOT NULL,
  node text,
  message text NOT NULL,
  output text,
  PRIMARY KEY (run_id, fence)
);

CREATE TABLE nodes (
  name text PRIMARY KEY,
  roles text NOT NULL,
  kinds text NOT NULL,
  labels text NOT NULL,
  version text NOT NULL,
  address text NOT NULL,
  state text NOT NULL,
  started_at bigint NOT NULL,
  heartbeat_at bigint NOT NULL,
  beat bigint NOT NULL,
  slots integer NOT NULL,
  busy integer NOT NULL
) WITH (fillfactor = 30);

CREATE TABLE leases (
  name text PRIMARY KEY,
  owner text NOT NULL,
  term bigint NOT NULL,
  beat bigint NOT NULL
) WITH (fillfactor = 30);

CREATE TABLE segments (
  segment smallint PRIMARY KEY,
  owner text NOT NULL,
  term bigint NOT NULL
) WITH (fillfactor = 30);

CREATE TABLE idempotency (
  scope text NOT NULL,
  key text NOT NULL,
  digest text NOT NULL,
  ids text NOT NULL,
  created_at bigint NOT NULL,
  PRIMARY KEY (scope, key)
);
