-- list_audit --
SELECT {audit_row} FROM audit
WHERE id < $1 AND (CAST($2 AS integer) IS NULL OR org = $2) AND (CAST($3 AS text) IS NULL OR who = $3)
  AND (CAST($4 AS text) IS NULL OR action = $4) AND (CAST($5 AS text) IS NULL OR kind = $5)
  AND (CAST($6 AS text) IS NULL OR subject = $6) AND (CAST($7 AS text) IS NULL OR outcome = $7)
  AND (CAST($8 AS bigint) IS NULL OR at >= $8) AND (CAST($9 AS bigint) IS NULL OR at < $9)
ORDER BY id DESC LIMIT $10;

-- audit_head --
SELECT seq, hash, first_seq, first_hash FROM audit_head;

-- load_unsealed --
SELECT {audit_row} FROM audit WHERE id > $1 ORDER BY id LIMIT $2;

-- insert_seal --
INSERT INTO audit_seals (seq, count, first_id, last_id, newest_at, ids, hashes)
VALUES ($1, $2, $3, $4, $5, CAST($6 AS {list}), $7);

-- move_audit_head --
UPDATE audit_head SET seq = $1, hash = $2, last_id = $3, holes = $4;

-- load_seals --
-- As many as have the next rows. Their numbers have no gaps, unless somebody has taken seals out.
SELECT seq, ids, hashes, newest_at FROM audit_seals
WHERE seq > $1 AND seq - count < $2 + (SELECT seq - count FROM audit_seals WHERE seq > $1 ORDER BY seq LIMIT 1)
ORDER BY seq;

-- load_audit --
SELECT {audit_row} FROM audit WHERE id IN {ids};

-- drop_audit --
DELETE FROM audit WHERE id IN {ids};

-- drop_seals --
DELETE FROM audit_seals WHERE seq <= $1;

-- keep_audit_from --
UPDATE audit_head SET first_seq = $1, first_hash = $2;
