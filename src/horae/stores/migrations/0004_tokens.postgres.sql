-- before the code: bearer tokens. Of the secret only a hash is kept; rows are never deleted, so ids are never given twice.
CREATE TABLE tokens (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  created_at bigint NOT NULL,
  expires_at bigint,
  revoked_at bigint,
  name text NOT NULL,
  scope text NOT NULL,
  owner text NOT NULL,
  hash text NOT NULL
);
