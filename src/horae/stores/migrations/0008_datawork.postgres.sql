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
