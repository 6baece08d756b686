-- before the code: a table of its own
-- What nodes tell each other where a pooler lets nobody listen: how often each has announced a topic, and (topic '')
-- that it looks. Not worth the log of the server: whatever is lost here is found by a look at the runs.
CREATE UNLOGGED TABLE hints (
  teller text NOT NULL,
  topic text NOT NULL,
  told bigint NOT NULL,
  told_at bigint NOT NULL,
  PRIMARY KEY (teller, topic)
);
