-- before the code: rows of the audit log are written once, and seals lie beside them.

-- A seal is of up to 500 rows, in the order in which they were sealed: their ids, and their hashes one after the other, 64
-- letters each. `seq` is the number of its last row.
CREATE TABLE audit_seals (
  seq INTEGER PRIMARY KEY,
  count INTEGER NOT NULL,
  first_id INTEGER NOT NULL,
  last_id INTEGER NOT NULL,
  newest_at INTEGER NOT NULL,
  ids TEXT NOT NULL,
  hashes TEXT NOT NULL
);
CREATE INDEX audit_seals_last_id ON audit_seals (last_id);

-- `last_id`: the highest that was sealed. There is one writer, so no row comes later with a lower one.
ALTER TABLE audit_head ADD COLUMN last_id INTEGER NOT NULL DEFAULT 0;
ALTER TABLE audit_head ADD COLUMN holes TEXT NOT NULL DEFAULT '[]';

INSERT INTO audit_seals
SELECT max(seq), count(*), min(id), max(id), max(at),
  (SELECT json_group_array(id) FROM (SELECT id FROM audit WHERE seq BETWEEN part * 500 + 1 AND part * 500 + 500 ORDER BY seq)),
  (SELECT group_concat(hash, '') FROM (SELECT hash FROM audit WHERE seq BETWEEN part * 500 + 1 AND part * 500 + 500 ORDER BY seq))
FROM (SELECT id, at, seq, (seq - 1) / 500 AS part FROM audit WHERE seq IS NOT NULL) GROUP BY part;
UPDATE audit_head SET last_id = COALESCE((SELECT max(last_id) FROM audit_seals), 0);

DROP INDEX audit_seq;
DROP INDEX audit_unsealed;
ALTER TABLE audit DROP COLUMN seq;
ALTER TABLE audit DROP COLUMN hash;
