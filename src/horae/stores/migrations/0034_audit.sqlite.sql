-- before the code: who did what, in rows that only come, and are sealed by hashes later.

-- `seq` and `hash` are set when a row is sealed. One that commits late, with a lower id than others, is still unsealed then,
-- and is found by that. A request that is repeated after its connection broke has its row once.
CREATE TABLE audit (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  at INTEGER NOT NULL,
  org INTEGER NOT NULL,
  who TEXT NOT NULL,
  via TEXT NOT NULL,
  address TEXT NOT NULL,
  action TEXT NOT NULL,
  operation TEXT NOT NULL,
  kind TEXT NOT NULL,
  subject TEXT NOT NULL,
  made TEXT NOT NULL,
  count INTEGER NOT NULL,
  change TEXT NOT NULL,
  request_id TEXT NOT NULL,
  nth INTEGER NOT NULL,
  outcome TEXT NOT NULL,
  code TEXT NOT NULL,
  seq INTEGER,
  hash TEXT
);
CREATE UNIQUE INDEX audit_request ON audit (request_id, nth);
CREATE UNIQUE INDEX audit_seq ON audit (seq) WHERE seq IS NOT NULL;
CREATE INDEX audit_unsealed ON audit (id) WHERE seq IS NULL;
CREATE INDEX audit_subject ON audit (kind, subject, id);

-- Up to where rows are sealed; and the last one that was dropped, from which the chain goes on.
CREATE TABLE audit_head (
  is_only INTEGER PRIMARY KEY DEFAULT 1 CHECK (is_only = 1),
  seq INTEGER NOT NULL,
  hash TEXT NOT NULL,
  first_seq INTEGER NOT NULL,
  first_hash TEXT NOT NULL
);
INSERT INTO audit_head (seq, hash, first_seq, first_hash) VALUES (0, '0000000000000000000000000000000000000000000000000000000000000000', 0, '0000000000000000000000000000000000000000000000000000000000000000');
