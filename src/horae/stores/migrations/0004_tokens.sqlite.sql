-- before the code: bearer tokens. Of the secret only a hash is kept; rows are never deleted, so ids are never given twice.
CREATE TABLE tokens (
  id INTEGER PRIMARY KEY,
  created_at INTEGER NOT NULL,
  expires_at INTEGER,
  revoked_at INTEGER,
  name TEXT NOT NULL,
  scope TEXT NOT NULL,
  owner TEXT NOT NULL,
  hash TEXT NOT NULL
) STRICT;
