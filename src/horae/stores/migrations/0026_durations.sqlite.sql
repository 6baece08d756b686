-- before the code: how long the runs of each job take, in a few numbers (core.insight.baselines).
CREATE TABLE durations (
  job_id INTEGER PRIMARY KEY,
  learned_at INTEGER NOT NULL,
  median INTEGER,
  spread REAL,
  share REAL NOT NULL,
  baseline TEXT NOT NULL
);
