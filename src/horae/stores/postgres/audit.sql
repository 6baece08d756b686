-- append_audit --
-- Rows of their own, or beside what is changed in the same transaction.
INSERT INTO audit (at, {audit_columns})
SELECT COALESCE($1::bigint, event_moment()), {audit_columns} FROM json_to_recordset($2::json) AS a({audit_types})
ON CONFLICT (request_id, nth) DO NOTHING;

-- seal_audit --
UPDATE audit SET seq = s.seq, hash = s.hash
FROM (SELECT (value->>0)::bigint AS id, value->>1 AS hash, $2::bigint + nth AS seq
  FROM json_array_elements($1::json) WITH ORDINALITY AS t(value, nth)) AS s
WHERE audit.id = s.id;
