-- before the code: users, how they prove who they are, where they are members; sessions of users; programs that wait for
-- a user to let them in.
CREATE TABLE users (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  created_at bigint NOT NULL,
  disabled_at bigint,
  invite_until bigint,
  name text NOT NULL UNIQUE,
  kind text NOT NULL,
  email text NOT NULL,
  password text,
  invite_hash text
);
-- Of a provider, the only thing that tells its users apart.
CREATE TABLE identities (
  user_id bigint NOT NULL,
  issuer text NOT NULL,
  subject text NOT NULL,
  PRIMARY KEY (issuer, subject)
);
CREATE INDEX identities_by_user ON identities (user_id);
CREATE TABLE organisations (
  id bigint PRIMARY KEY,
  created_at bigint NOT NULL,
  name text NOT NULL UNIQUE
);
-- Organisation 0 is all of them: its admins run the installation. Those that tokens speak of already get a name.
INSERT INTO organisations (id, created_at, name) VALUES (0, 0, '*'), (1, 0, 'default');
INSERT INTO organisations (id, created_at, name)
  SELECT DISTINCT org, 0, 'org-' || org FROM tokens WHERE org <> 1;
-- What was said by hand and what a provider said stand beside each other; the greater role counts.
CREATE TABLE members (
  org bigint NOT NULL,
  user_id bigint NOT NULL,
  role text NOT NULL,
  source text NOT NULL,
  PRIMARY KEY (user_id, org, source)
);
CREATE INDEX members_by_org ON members (org, user_id);
ALTER TABLE tokens ADD COLUMN user_id bigint;
-- token_id is 0 for the session of a user.
ALTER TABLE sessions ADD COLUMN user_id bigint;
ALTER TABLE sessions ADD COLUMN org bigint NOT NULL DEFAULT 1;
ALTER TABLE sessions ADD COLUMN seen_at bigint NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN proven_at bigint NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN refresh_at bigint;
ALTER TABLE sessions ADD COLUMN address text NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN agent text NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN issuer text NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN refresh text;
CREATE INDEX sessions_by_user ON sessions (user_id) WHERE user_id IS NOT NULL;
CREATE TABLE devices (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  created_at bigint NOT NULL,
  expires_at bigint NOT NULL,
  user_id bigint,
  org bigint NOT NULL,
  code text NOT NULL UNIQUE,
  hash text NOT NULL,
  address text NOT NULL,
  state text NOT NULL
);
CREATE INDEX devices_by_end ON devices (expires_at);
