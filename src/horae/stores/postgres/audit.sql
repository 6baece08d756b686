-- append_audit --
-- Rows of their own, or beside what is changed in the same transaction. That is one before any id is taken: so whoever
-- looks for a late row knows for whom to wait.
INSERT INTO audit (at, {audit_columns})
SELECT COALESCE($1::bigint, event_moment()), {audit_columns} FROM json_to_recordset($2::json) AS a({audit_types})
WHERE pg_current_xact_id() IS NOT NULL
ON CONFLICT (request_id, nth) DO NOTHING;

-- lock_audit_head --
-- Whoever else seals waits. All transactions below `settled` have ended, and what they wrote is seen from here on.
SELECT seq, hash, first_seq, first_hash, last_id, holes, pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS settled
FROM audit_head FOR UPDATE;

-- load_late_audit --
SELECT {audit_row} FROM unnest($1::bigint[], $2::bigint[]) AS h(first, last) JOIN audit ON id BETWEEN h.first AND h.last
ORDER BY id;

-- audit_mark --
-- All transactions that have taken an id by now are below it.
SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint;

-- load_seals_of --
-- Of some rows: id, number and hash, if they are sealed.
SELECT id, seq - count + place, substr(hashes, (place - 1) * 64 + 1, 64)
FROM (SELECT v.value AS id, s.seq, s.count, s.hashes, array_position(s.ids, v.value) AS place
  FROM {ids} AS v CROSS JOIN LATERAL (
    SELECT * FROM audit_seals t WHERE t.last_id >= v.value AND t.first_id <= v.value AND v.value = ANY(t.ids)
    ORDER BY t.last_id LIMIT 1) AS s) AS found;

-- find_strays --
-- Of ids between what the seals before the first number have seen and what those up to the second have.
WITH b AS MATERIALIZED (
  SELECT COALESCE((SELECT max(last_id) FROM audit_seals WHERE seq <= $1), -9223372036854775807) AS low,
    (SELECT max(last_id) FROM audit_seals WHERE seq <= $2) AS high
)
SELECT id, (SELECT holes FROM audit_head) FROM (
  SELECT id FROM b, audit WHERE id > low AND id <= high
  EXCEPT SELECT unnest(ids) FROM b, audit_seals WHERE last_id > low AND first_id <= high) AS strays
ORDER BY id LIMIT $3;
