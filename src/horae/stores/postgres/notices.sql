-- channel --
-- A schema of its own is an installation of its own; the hash keeps any name within what a channel may be called.
SELECT 'horae_' || left(md5(current_schema()), 16);

-- count_others --
-- Those that listen, and those that look at the table of hints, beside us.
SELECT (SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = $1 AND pid <> pg_backend_pid()),
  (SELECT count(*) FROM hints
    WHERE topic = '' AND teller <> $2 AND told_at > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - 10000000);

-- notify --
SELECT pg_notify($1, $2);

-- tell_pollers --
INSERT INTO hints (teller, topic, told, told_at)
SELECT $1, topic, 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM unnest($2::text[]) AS t(topic)
ON CONFLICT (teller, topic) DO UPDATE SET told = hints.told + 1, told_at = excluded.told_at;

-- load_hints --
SELECT teller, topic, told FROM hints WHERE topic <> '' AND teller <> $1;

-- drop_hints --
-- Of tellers that have been silent for an hour, and so are gone or have nothing to say.
DELETE FROM hints WHERE told_at < (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - 3600000000;
