-- before the code: runs that are tasks of others, come after others, or wait to be told something; and a note of those
-- ends for which somebody waits. All of it is NULL for ordinary runs.
ALTER TABLE jobs ADD COLUMN part_of INTEGER;
ALTER TABLE jobs ADD COLUMN followed INTEGER;
CREATE INDEX jobs_part_of ON jobs (part_of) WHERE part_of IS NOT NULL;

ALTER TABLE live ADD COLUMN parent_id INTEGER;
ALTER TABLE live ADD COLUMN task TEXT;
ALTER TABLE live ADD COLUMN followed INTEGER;
ALTER TABLE live ADD COLUMN depends INTEGER;
ALTER TABLE live ADD COLUMN resumes INTEGER;
-- The signal for which it waits, and what it was told: a JSON object, by the name of the signal.
ALTER TABLE live ADD COLUMN awaits TEXT;
ALTER TABLE live ADD COLUMN answers TEXT;
-- Of an order that waits for more of its kind: their key, and when it waits no longer.
ALTER TABLE live ADD COLUMN debounce TEXT;
ALTER TABLE live ADD COLUMN latest_at INTEGER;
CREATE INDEX live_parent ON live (parent_id) WHERE parent_id IS NOT NULL;
CREATE UNIQUE INDEX live_debounce ON live (job_id, debounce) WHERE debounce IS NOT NULL;

ALTER TABLE history ADD COLUMN parent_id INTEGER;
ALTER TABLE history ADD COLUMN task TEXT;
ALTER TABLE history ADD COLUMN followed INTEGER;
CREATE INDEX history_parent ON history (parent_id) WHERE parent_id IS NOT NULL;

-- What somebody has to act on, written in the transaction in which it happened and dropped in that of the act: a run
-- ended ('run'), a run was made that comes after others ('arrived'), a waiting parent shall end ('cancel'), a node is
-- gone ('node').
CREATE TABLE endings (
  id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used twice: a row is dropped by it
  kind TEXT NOT NULL,
  run_id INTEGER,
  job_id INTEGER,
  parent_id INTEGER,
  due_at INTEGER,
  state INTEGER,
  name TEXT
) STRICT;

CREATE TRIGGER history_followed AFTER INSERT ON history WHEN NEW.followed BEGIN
  INSERT INTO endings (kind, run_id, job_id, parent_id, due_at, state)
  VALUES ('run', NEW.id, NEW.job_id, NEW.parent_id, NEW.due_at, NEW.state);
END;

CREATE TRIGGER live_born_dependent AFTER INSERT ON live
WHEN NEW.depends AND NEW.state = 2 AND NEW.reason = 'dependency' BEGIN
  INSERT INTO endings (kind, run_id, job_id, parent_id, due_at, state)
  VALUES ('arrived', NEW.id, NEW.job_id, NEW.parent_id, NEW.due_at, NEW.state);
END;

CREATE TRIGGER live_arrived AFTER UPDATE OF reason ON live
WHEN NEW.depends AND NEW.state = 2 AND NEW.reason = 'dependency' BEGIN
  INSERT INTO endings (kind, run_id, job_id, parent_id, due_at, state)
  VALUES ('arrived', NEW.id, NEW.job_id, NEW.parent_id, NEW.due_at, NEW.state);
END;

-- The graph of a workflow as it was when its run began, and how often it moved on: whoever moves it compares and sets.
CREATE TABLE flows (
  run_id INTEGER PRIMARY KEY,
  job_id INTEGER NOT NULL,
  version INTEGER NOT NULL,
  document TEXT NOT NULL,
  adopted TEXT
) STRICT;

-- Successors are looked for now and then, whatever else waits: those alone.
CREATE INDEX live_successors ON live (job_id) WHERE state = 2 AND reason = 'overlap';
