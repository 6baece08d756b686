-- before the code: runs on loan to workers outside Horae, segments of schedulers outside Horae, and sources of syncs.

-- A run that ends leaves its row behind, because ending is hot: a row counts only with its running run and fence.
CREATE TABLE loans (
  run_id bigint PRIMARY KEY,
  until_at bigint NOT NULL,
  fence integer NOT NULL,
  worker text NOT NULL,
  progress text
) WITH (fillfactor = 50);

CREATE TABLE taken_segments (
  segment smallint PRIMARY KEY,
  since_at bigint NOT NULL,
  worker text NOT NULL
);

CREATE TABLE sources (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  org integer NOT NULL,
  owner text NOT NULL,
  name text NOT NULL,
  kind text NOT NULL,
  config text NOT NULL
);
