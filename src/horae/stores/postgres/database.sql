-- now [beat] --
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- timeline --
-- The number of failovers and restores that the server has behind it, plus one: the first 8 digits of its log files.
SELECT ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int;

-- note_timeline --
-- How many seconds ago the first process met this timeline: now, if that is this one.
WITH c AS (SELECT extract(epoch FROM clock_timestamp()) AS now), noted AS (
  INSERT INTO settings (name, value) SELECT 'timeline_' || $1::text, now::text FROM c
  ON CONFLICT (name) DO UPDATE SET value = settings.value RETURNING value
)
SELECT greatest(0, c.now - noted.value::numeric)::float8 FROM c, noted;
