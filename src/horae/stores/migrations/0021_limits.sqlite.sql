-- before the code: what runs must have beyond a slot, and the keys under which that is counted (core.policy.demands).
-- Equal demands are one row; those that no run has any more are dropped when nobody has asked for them for long.
CREATE TABLE demands (
  id integer PRIMARY KEY AUTOINCREMENT,
  digest text NOT NULL UNIQUE,
  document text NOT NULL,
  used_at integer NOT NULL
) STRICT;

-- What is in use is counted from running rows alone.
CREATE TABLE limits (
  key text PRIMARY KEY,
  capacity integer,
  ready_at integer NOT NULL,
  used_at integer NOT NULL
) STRICT, WITHOUT ROWID;
