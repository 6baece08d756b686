-- hold_locks --
-- The statements that follow see every claim that belongs to a lock: two that take at once could overlook each other's.
LOCK TABLE locks IN SHARE ROW EXCLUSIVE MODE;

-- take_locks --
-- A lock is void when its run is not running under its fence any more; an older run that waits for it comes first.
INSERT INTO locks (name, run_id, fence)
SELECT v ->> 0, CAST(v ->> 1 AS bigint), CAST(v ->> 2 AS integer) FROM json_array_elements($1::json) AS t(v)
ON CONFLICT (name) DO UPDATE SET run_id = excluded.run_id, fence = excluded.fence
WHERE NOT EXISTS (SELECT 1 FROM live l WHERE l.id = locks.run_id AND l.fence = locks.fence AND l.state = {running})
  AND NOT EXISTS (SELECT 1 FROM live w WHERE w.state = {blocked} AND w.waits_for = locks.run_id AND w.id < excluded.run_id)
RETURNING name, run_id;

-- lock_holders --
SELECT name, run_id FROM locks WHERE name = ANY($1::text[]);
