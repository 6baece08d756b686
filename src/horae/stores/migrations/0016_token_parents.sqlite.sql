-- before the code: by which token another was made, with which it ends; and sessions, each of a token
ALTER TABLE tokens ADD COLUMN parent_id INTEGER;
CREATE TABLE sessions (
  id INTEGER PRIMARY KEY,
  token_id INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  hash TEXT NOT NULL
) STRICT;
CREATE INDEX sessions_by_end ON sessions (expires_at);
