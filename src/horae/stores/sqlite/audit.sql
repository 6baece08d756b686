-- append_audit --
INSERT INTO audit (at, {audit_columns})
SELECT $1, {audit_json} FROM json_each($2) AS a WHERE true
ON CONFLICT (request_id, nth) DO NOTHING;

-- seal_audit --
UPDATE audit SET seq = s.seq, hash = s.hash
FROM (SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS hash, $2 + key + 1 AS seq
  FROM json_each($1)) AS s
WHERE audit.id = s.id;
