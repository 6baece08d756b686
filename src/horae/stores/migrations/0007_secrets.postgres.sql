-- before the code: named secrets, sealed with a key that is not in the database.
CREATE TABLE secrets (
  org integer NOT NULL,
  name text NOT NULL,
  version integer NOT NULL,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  sealed text NOT NULL,
  PRIMARY KEY (org, name)
);
