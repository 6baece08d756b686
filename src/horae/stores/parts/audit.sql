-- list_audit --
SELECT {audit_row} FROM audit
WHERE id < $1 AND (CAST($2 AS integer) IS NULL OR org = $2) AND (CAST($3 AS text) IS NULL OR who = $3)
  AND (CAST($4 AS text) IS NULL OR action = $4) AND (CAST($5 AS text) IS NULL OR kind = $5)
  AND (CAST($6 AS text) IS NULL OR subject = $6) AND (CAST($7 AS text) IS NULL OR outcome = $7)
  AND (CAST($8 AS bigint) IS NULL OR at >= $8) AND (CAST($9 AS bigint) IS NULL OR at < $9)
ORDER BY id DESC LIMIT $10;

-- load_unsealed --
SELECT {audit_row} FROM audit WHERE seq IS NULL ORDER BY id LIMIT $1;

-- audit_head --
SELECT seq, hash, first_seq, first_hash FROM audit_head;

-- move_audit_head --
-- Whoever else seals waits for the row, and finds that it has moved on.
UPDATE audit_head SET seq = $3, hash = $4 WHERE seq = $1 AND hash = $2 RETURNING seq;

-- read_sealed --
SELECT {audit_row} FROM audit WHERE seq > $1 ORDER BY seq LIMIT $2;

-- first_recent_audit --
-- Of those that are sealed.
SELECT seq FROM audit WHERE seq > $1 AND at >= $2 ORDER BY seq LIMIT 1;

-- audit_hash --
SELECT hash FROM audit WHERE seq = $1;

-- drop_audit --
DELETE FROM audit WHERE seq <= $1;

-- keep_audit_from --
UPDATE audit_head SET first_seq = $1, first_hash = $2 WHERE first_seq < $1;
