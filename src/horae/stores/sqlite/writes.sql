-- hold_locks --
-- There is one writer: nobody else takes any meanwhile.
SELECT 1;

-- take_locks --
-- A lock is void when its run is not running under its fence any more; an older run that waits for it comes first.
INSERT INTO locks (name, run_id, fence)
SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each($1) WHERE 1 = 1
ON CONFLICT (name) DO UPDATE SET run_id = excluded.run_id, fence = excluded.fence
WHERE NOT EXISTS (SELECT 1 FROM live l WHERE l.id = locks.run_id AND l.fence = locks.fence AND l.state = {running})
  AND NOT EXISTS (SELECT 1 FROM live w WHERE w.state = {blocked} AND w.waits_for = locks.run_id AND w.id < excluded.run_id)
RETURNING name, run_id;

-- lock_holders --
SELECT name, run_id FROM locks WHERE name IN (SELECT value FROM json_each($1));
