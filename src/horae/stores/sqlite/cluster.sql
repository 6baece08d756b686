-- lock_segments --
-- There is one writer: nobody else takes any meanwhile.
SELECT 1;

-- hold_node --
-- There is one writer: nobody else writes meanwhile.
SELECT $1;

-- lock_node --
SELECT state, wanted, evicted_at FROM nodes WHERE name = $1;

-- beat --
UPDATE nodes SET beat = beat + 1, busy = $2, heartbeat_at = $3, free = COALESCE($5, free)
WHERE name = $1 AND state IN ('live', 'draining') AND ($4 IS NULL OR session = $4) RETURNING 0, beat, wanted;

-- bury_nodes --
-- Only what was seen to stand still, and only by whom the lead belongs to.
UPDATE nodes SET state = 'gone', beat = beat + 1
WHERE EXISTS (SELECT 1 FROM json_each($1) x WHERE x.value ->> 0 = nodes.name AND x.value ->> 1 = nodes.beat
    AND x.value ->> 2 = nodes.session AND x.value ->> 3 = nodes.state)
  AND EXISTS (SELECT 1 FROM leases WHERE name = $2 AND owner = $3 AND term = $4) RETURNING name;

-- open_line --
-- Not of one that was evicted, by whatever name it comes.
UPDATE nodes SET via = $3, line = $4, session = session + 1
WHERE name = $1 AND (identity = $2 OR state = 'gone') AND evicted_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM nodes e WHERE e.identity = $2 AND e.evicted_at IS NOT NULL) RETURNING session;

-- line_refused --
SELECT CASE WHEN evicted_at IS NOT NULL THEN -1 END FROM nodes
WHERE name = $1 OR identity = $2 AND evicted_at IS NOT NULL ORDER BY evicted_at IS NULL LIMIT 1;

-- revoke_tokens_of --
-- Those that are good for this node alone.
UPDATE tokens SET revoked_at = coalesce(revoked_at, $2) WHERE scope IN ('agent', 'join') AND bound ->> '$.node' = $1;

-- session_of --
SELECT -1, session, state FROM nodes WHERE name = $1;

-- digest_of --
SELECT count(*), COALESCE(sum({digest}), 0) FROM live WHERE node = $1 AND state = {running};

-- cancels_of --
SELECT id, fence FROM live WHERE cancel AND node = $1 AND state = {running};

-- assign_segments [beat] --
INSERT INTO segments (segment, owner, term, since_at)
SELECT m.key, m.value, 1, $5 FROM json_each($1) m
WHERE EXISTS (SELECT 1 FROM leases WHERE name = $2 AND owner = $3 AND term = $4)
ON CONFLICT (segment) DO UPDATE SET owner = excluded.owner, term = segments.term + 1, since_at = excluded.since_at
RETURNING segment;
