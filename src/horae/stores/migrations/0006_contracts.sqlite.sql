-- before the code: runs on loan to workers outside Horae, segments of schedulers outside Horae, and sources of syncs.

-- A run that ends leaves its row behind, because ending is hot: a row counts only with its running run and fence.
CREATE TABLE loans (
  run_id INTEGER PRIMARY KEY,
  until_at INTEGER NOT NULL,
  fence INTEGER NOT NULL,
  worker TEXT NOT NULL,
  progress TEXT
) STRICT;

CREATE TABLE taken_segments (
  segment INTEGER PRIMARY KEY,
  since_at INTEGER NOT NULL,
  worker TEXT NOT NULL
) STRICT;

CREATE TABLE sources (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  org INTEGER NOT NULL,
  owner TEXT NOT NULL,
  name TEXT NOT NULL,
  kind TEXT NOT NULL,
  config TEXT NOT NULL
) STRICT;
