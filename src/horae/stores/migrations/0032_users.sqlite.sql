-- before the code: users, how they prove who they are, where they are members; sessions of users; programs that wait for
-- a user to let them in.
CREATE TABLE users (
  id INTEGER PRIMARY KEY,
  created_at INTEGER NOT NULL,
  disabled_at INTEGER,
  invite_until INTEGER,
  name TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  email TEXT NOT NULL,
  password TEXT,
  invite_hash TEXT
) STRICT;
-- Of a provider, the only thing that tells its users apart.
CREATE TABLE identities (
  user_id INTEGER NOT NULL,
  issuer TEXT NOT NULL,
  subject TEXT NOT NULL,
  PRIMARY KEY (issuer, subject)
) STRICT;
CREATE INDEX identities_by_user ON identities (user_id);
CREATE TABLE organisations (
  id INTEGER PRIMARY KEY,
  created_at INTEGER NOT NULL,
  name TEXT NOT NULL UNIQUE
) STRICT;
-- Organisation 0 is all of them: its admins run the installation. Those that tokens speak of already get a name.
INSERT INTO organisations (id, created_at, name) VALUES (0, 0, '*'), (1, 0, 'default');
INSERT INTO organisations (id, created_at, name)
  SELECT DISTINCT org, 0, 'org-' || org FROM tokens WHERE org <> 1;
-- What was said by hand and what a provider said stand beside each other; the greater role counts.
CREATE TABLE members (
  org INTEGER NOT NULL,
  user_id INTEGER NOT NULL,
  role TEXT NOT NULL,
  source TEXT NOT NULL,
  PRIMARY KEY (user_id, org, source)
) STRICT;
CREATE INDEX members_by_org ON members (org, user_id);
ALTER TABLE tokens ADD COLUMN user_id INTEGER;
-- token_id is 0 for the session of a user.
ALTER TABLE sessions ADD COLUMN user_id INTEGER;
ALTER TABLE sessions ADD COLUMN org INTEGER NOT NULL DEFAULT 1;
ALTER TABLE sessions ADD COLUMN seen_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN proven_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN refresh_at INTEGER;
ALTER TABLE sessions ADD COLUMN address TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN agent TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN issuer TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN refresh TEXT;
CREATE INDEX sessions_by_user ON sessions (user_id) WHERE user_id IS NOT NULL;
CREATE TABLE devices (
  id INTEGER PRIMARY KEY,
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  user_id INTEGER,
  org INTEGER NOT NULL,
  code TEXT NOT NULL UNIQUE,
  hash TEXT NOT NULL,
  address TEXT NOT NULL,
  state TEXT NOT NULL
) STRICT;
CREATE INDEX devices_by_end ON devices (expires_at);
