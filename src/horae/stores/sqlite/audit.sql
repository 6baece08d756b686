-- append_audit --
INSERT INTO audit (at, {audit_columns})
SELECT $1, {audit_json} FROM json_each($2) AS a WHERE true
ON CONFLICT (request_id, nth) DO NOTHING;

-- lock_audit_head --
-- There is one writer: no row comes later than those with higher ids, and nobody has to wait for one.
SELECT seq, hash, first_seq, first_hash, last_id, holes, NULL AS settled FROM audit_head;

-- load_seals_of --
-- Of some rows: id, number and hash, if they are sealed.
SELECT id, seq - count + place + 1, substr(hashes, place * 64 + 1, 64)
FROM (SELECT id, s.seq, s.count, s.hashes, (SELECT key FROM json_each(s.ids) WHERE value = found.id) AS place
  FROM (SELECT v.value AS id, (SELECT t.seq FROM audit_seals t
      WHERE t.last_id >= v.value AND t.first_id <= v.value AND v.value IN (SELECT value FROM json_each(t.ids))
      ORDER BY t.last_id LIMIT 1) AS seal
    FROM {ids} AS v) AS found JOIN audit_seals s ON s.seq = found.seal);

-- find_strays --
-- Of ids between what the seals before the first number have seen and what those up to the second have.
WITH b AS MATERIALIZED (
  SELECT COALESCE((SELECT max(last_id) FROM audit_seals WHERE seq <= $1), -9223372036854775807) AS low,
    (SELECT max(last_id) FROM audit_seals WHERE seq <= $2) AS high
)
SELECT id, (SELECT holes FROM audit_head) FROM (
  SELECT id FROM b, audit WHERE id > low AND id <= high
  EXCEPT SELECT value FROM b, audit_seals, json_each(ids) WHERE last_id > low AND first_id <= high) AS strays
ORDER BY id LIMIT $3;
