-- before the code: rows of the audit log are written once, and seals lie beside them.

-- A seal is of up to 500 rows, in the order in which they were sealed: their ids, and their hashes one after the other, 64
-- letters each. `seq` is the number of its last row.
CREATE TABLE audit_seals (
  seq bigint PRIMARY KEY,
  count integer NOT NULL,
  first_id bigint NOT NULL,
  last_id bigint NOT NULL,
  newest_at bigint NOT NULL,
  ids bigint[] NOT NULL,
  hashes text NOT NULL
);
CREATE INDEX audit_seals_last_id ON audit_seals (last_id);

-- `last_id`: the highest that was sealed. `holes`: ids below it that were given out and were not there, as [first, last, the
-- transaction before which all must have ended].
ALTER TABLE audit_head ADD COLUMN last_id bigint NOT NULL DEFAULT 0, ADD COLUMN holes text NOT NULL DEFAULT '[]';

INSERT INTO audit_seals
SELECT max(seq), count(*), min(id), max(id), max(at), array_agg(id ORDER BY seq), string_agg(hash, '' ORDER BY seq)
FROM audit WHERE seq IS NOT NULL GROUP BY (seq - 1) / 500;
UPDATE audit_head SET last_id = COALESCE((SELECT max(last_id) FROM audit_seals), 0);
UPDATE audit_head SET holes = COALESCE((
  SELECT json_agg(json_build_array(id, id, 0))::text FROM audit WHERE seq IS NULL AND id < audit_head.last_id), '[]');

DROP INDEX audit_seq;
DROP INDEX audit_unsealed;
ALTER TABLE audit DROP COLUMN seq, DROP COLUMN hash;
