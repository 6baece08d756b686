-- before the code: how long the runs of each job take, in a few numbers (core.insight.baselines).
CREATE TABLE durations (
  job_id bigint PRIMARY KEY,
  learned_at bigint NOT NULL,
  median bigint,
  spread real,
  share real NOT NULL,
  baseline text NOT NULL
) WITH (fillfactor = 70);
