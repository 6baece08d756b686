-- register_node --
-- What the same line says again has been done: should a repeat come late, it supersedes nobody.
INSERT INTO nodes (name, roles, kinds, labels, version, address, started_at, heartbeat_at, slots, grpc, via,
  identity, holder, resources, capacity, free, line, session, state, beat, busy)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $14, $16, 1, 'live', 0, 0)
ON CONFLICT (name) DO UPDATE SET roles = excluded.roles, kinds = excluded.kinds, labels = excluded.labels,
  version = excluded.version, address = excluded.address, started_at = excluded.started_at,
  heartbeat_at = excluded.heartbeat_at, slots = excluded.slots, grpc = excluded.grpc, via = excluded.via,
  identity = excluded.identity, holder = excluded.holder, resources = excluded.resources,
  capacity = excluded.capacity, free = excluded.free, line = excluded.line,
  session = nodes.session + CASE WHEN nodes.line = $16 AND nodes.line <> '' AND nodes.session <> CAST($17 AS bigint)
    THEN 0 ELSE 1 END,
  state = 'live', beat = nodes.beat + 1, busy = 0, ailment = ''
WHERE nodes.evicted_at IS NULL
  AND (CAST($17 AS bigint) IS NULL OR nodes.session = CAST($17 AS bigint) OR (nodes.line = $16 AND nodes.line <> ''))
RETURNING session;

-- note_ailment --
UPDATE nodes SET ailment = $2 WHERE name = $1 AND (CAST($3 AS bigint) IS NULL OR session = CAST($3 AS bigint));

-- note_nodes --
INSERT INTO endings (kind, name, due_at)
SELECT 'node', CAST($2 AS text) || name, heartbeat_at FROM nodes WHERE name IN {names} ORDER BY name;

-- want_node --
UPDATE nodes SET wanted = $2 WHERE name = $1 RETURNING name;

-- evict_node --
-- The first time stands. Nobody has its name any more.
UPDATE nodes SET state = 'gone', beat = beat + 1, holder = '', evicted_at = coalesce(evicted_at, $2)
WHERE name = $1 RETURNING name;

-- readmit_node --
-- By its name, and, where that is known, whatever it was called when it was evicted.
UPDATE nodes SET evicted_at = NULL WHERE (name = $1 OR identity = $2) AND evicted_at IS NOT NULL RETURNING name;

-- retire_node --
-- One that is gone by its own word leaves its name to nobody; one that was declared gone may still have it.
UPDATE nodes SET state = $2, beat = beat + 1, holder = CASE WHEN $2 = 'gone' THEN '' ELSE holder END
WHERE name = $1 AND (CAST($3 AS bigint) IS NULL OR session = CAST($3 AS bigint)) RETURNING name;

-- list_nodes [beat] --
SELECT name, roles, kinds, labels, version, address, state, started_at, heartbeat_at, beat, slots, busy, grpc, via,
  wanted, identity, session, holder, ailment, resources, capacity, free, evicted_at
FROM nodes ORDER BY name;

-- get_node [beat] --
SELECT name, roles, kinds, labels, version, address, state, started_at, heartbeat_at, beat, slots, busy, grpc, via,
  wanted, identity, session, holder, ailment, resources, capacity, free, evicted_at
FROM nodes WHERE name = $1;

-- get_lease [beat] --
SELECT name, owner, term, beat FROM leases WHERE name = $1;

-- make_lease --
INSERT INTO leases (name, owner, term, beat) VALUES ($1, $2, 1, 0)
ON CONFLICT (name) DO NOTHING RETURNING name, owner, term, beat;

-- take_lease --
-- Only from the state the candidate has seen: a renewal in between moves the beat and wins.
UPDATE leases SET owner = $2, term = term + 1, beat = 0
WHERE name = $1 AND owner = $3 AND term = $4 AND beat = $5 RETURNING name, owner, term, beat;

-- renew_lease --
UPDATE leases SET beat = beat + 1 WHERE name = $1 AND owner = $2 AND term = $3 RETURNING name, owner, term, beat;

-- resign_lease --
-- An empty owner may be replaced at once.
UPDATE leases SET owner = '', beat = beat + 1 WHERE name = $1 AND owner = $2 AND term = $3;

-- load_segments [beat] --
SELECT segment, owner, term FROM segments ORDER BY segment;

-- load_segment_holders [beat] --
-- Who owns each, and who was told to hold it: the leader asks every second, so it is one statement.
SELECT segment, owner, 0 FROM segments
UNION ALL SELECT t.segment, t.worker, 1 FROM taken_segments t JOIN nodes n ON n.name = t.worker AND n.state = 'live'
ORDER BY 1;

-- drop_dead_segments --
DELETE FROM taken_segments WHERE worker NOT IN (SELECT name FROM nodes WHERE state = 'live');

-- give_segments --
-- The lowest free ones, as many as are missing.
INSERT INTO taken_segments (segment, worker, since_at)
WITH RECURSIVE every(segment) AS (
  SELECT 0 UNION ALL SELECT segment + 1 FROM every WHERE segment + 1 < CAST($4 AS integer)
)
SELECT segment, CAST($1 AS text), CAST($3 AS bigint) FROM every
WHERE segment NOT IN (SELECT segment FROM taken_segments)
  AND EXISTS (SELECT 1 FROM nodes WHERE name = $1 AND state = 'live')
ORDER BY segment
LIMIT (SELECT CASE WHEN count(*) < CAST($2 AS bigint) THEN CAST($2 AS bigint) - count(*) ELSE 0 END
       FROM taken_segments WHERE worker = $1 AND segment >= 0);

-- trim_segments --
DELETE FROM taken_segments WHERE segment IN (
  SELECT segment FROM taken_segments WHERE worker = $1 AND segment >= 0
  ORDER BY segment LIMIT 100 OFFSET CAST($2 AS bigint));

-- segments_of --
SELECT segment FROM taken_segments WHERE worker = $1 AND segment >= 0 ORDER BY segment;

-- hold_segment --
INSERT INTO taken_segments (segment, worker, since_at) VALUES ($1, $2, $3)
ON CONFLICT (segment) DO UPDATE SET worker = excluded.worker, since_at = excluded.since_at;

-- hold_nothing --
-- A row below zero, of which each worker has its own: it was told that it holds none.
INSERT INTO taken_segments (segment, worker, since_at)
SELECT CASE WHEN min(segment) < 0 THEN min(segment) ELSE 0 END - 1, CAST($1 AS text), CAST($2 AS bigint)
FROM taken_segments;

-- drop_segments [beat] --
DELETE FROM taken_segments WHERE worker = $1;

-- count_running --
SELECT node, count(*) FROM live WHERE state = {running} AND node IS NOT NULL GROUP BY node;

-- load_taken_segments [beat] --
SELECT t.segment, t.worker, t.since_at FROM taken_segments t JOIN nodes n ON n.name = t.worker AND n.state = 'live'
ORDER BY t.segment;

-- count_by_segment --
SELECT segment, count(*), sum(CASE WHEN next_at < $1 THEN 1 ELSE 0 END) FROM due
WHERE next_at < 9223372036854775807 GROUP BY segment;
