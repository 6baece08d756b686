-- before the code: by which token another was made, with which it ends; and sessions, each of a token
ALTER TABLE tokens ADD COLUMN parent_id bigint;
CREATE TABLE sessions (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  token_id bigint NOT NULL,
  created_at bigint NOT NULL,
  expires_at bigint NOT NULL,
  hash text NOT NULL
);
CREATE INDEX sessions_by_end ON sessions (expires_at);
