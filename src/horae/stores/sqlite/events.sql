-- read_events --
-- Their ids have no gaps: what is missing before the first was dropped.
SELECT 0, id, at, kind, state, reason, fence, name, ids, jobs, 0, (SELECT id FROM events ORDER BY id LIMIT 1) - 1 FROM events
WHERE $1 = 0 AND id >= $2 AND ($4 IS NULL OR kind IN (SELECT value FROM json_each($4))) AND ($5 IS NULL OR jobs = $5)
  AND ($6 IS NULL OR ids = $6 AND kind LIKE 'run.%')
ORDER BY id LIMIT $3;

-- last_event --
SELECT 0, COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0) + 1;

-- find_events --
SELECT 0, id FROM events WHERE at >= $1 ORDER BY id LIMIT 1;

-- drop_events --
DELETE FROM events WHERE id IN (SELECT id FROM events WHERE at < $1 ORDER BY id LIMIT $2) RETURNING id;

-- load_reader --
SELECT place FROM event_readers WHERE name = $1;

-- save_reader --
INSERT INTO event_readers (name, place) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET place = excluded.place;

-- tell_segments --
INSERT INTO events (at, kind, name, ids)
SELECT $1, 'segment.assigned', owner, json_group_array(segment) FROM segments
WHERE segment IN (SELECT value FROM json_each($2)) GROUP BY owner;

-- tell_trigger --
INSERT INTO events (at, kind, fence, ids, jobs) VALUES ($1, $2, $3, $4, $5);
