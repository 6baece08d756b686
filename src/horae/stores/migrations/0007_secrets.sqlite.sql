-- before the code: named secrets, sealed with a key that is not in the database.
CREATE TABLE secrets (
  org INTEGER NOT NULL,
  name TEXT NOT NULL,
  version INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  sealed TEXT NOT NULL,
  PRIMARY KEY (org, name)
) STRICT;
