-- before the code: queues, the order of what waits in them, and an index by that order. Runs of older nodes are in the
-- default queue, at its head.
CREATE TABLE queues (
  id integer PRIMARY KEY,
  name text NOT NULL UNIQUE,
  state text NOT NULL,
  priority_offset integer NOT NULL,
  labels text,
  document text NOT NULL,
  version integer NOT NULL,
  created_at integer NOT NULL,
  updated_at integer NOT NULL
) STRICT;
INSERT INTO queues (id, name, state, priority_offset, labels, document, version, created_at, updated_at)
VALUES (0, 'default', 'open', 0, NULL, '{}', 1, 0, 0);

-- How far each of those who share a line has come, and, without a key, the line itself (core.policy.order).
CREATE TABLE shares (
  kind text NOT NULL,
  queue integer NOT NULL,
  priority integer NOT NULL,
  key text NOT NULL,
  pass integer NOT NULL,
  PRIMARY KEY (kind, queue, priority, key)
) STRICT, WITHOUT ROWID;

ALTER TABLE live ADD COLUMN pass integer NOT NULL DEFAULT 0;
ALTER TABLE live ADD COLUMN queue integer NOT NULL DEFAULT 0;
-- Whose line it shares; kept only of what is ordered for later, which takes its place when its moment comes.
ALTER TABLE live ADD COLUMN share text;
-- What it must have beyond a slot, if anything: such a run waits as blocked(limit) until it can have all of it.
ALTER TABLE live ADD COLUMN demand integer;
CREATE INDEX live_order ON live (kind, queue, priority DESC, pass, id) WHERE state = 0;
CREATE INDEX live_pinned_order ON live (pin, kind, priority DESC, pass, id) WHERE state = 0 AND pin IS NOT NULL;
CREATE INDEX live_demanding ON live (demand, priority DESC, pass, id) WHERE state = 2 AND reason = 'limit';
CREATE INDEX live_holding ON live (demand) WHERE state = 1 AND demand IS NOT NULL;
DROP INDEX live_queued;
DROP INDEX live_pinned;
