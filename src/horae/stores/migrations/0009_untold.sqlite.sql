-- before the code: runs that have ended and of which others are still to be told.

-- One row a run, written by a trigger in the transaction that ends it, dropped when the broker has its event. The
-- trigger is there only where events are wanted (watch_ended).
CREATE TABLE untold (run_id INTEGER PRIMARY KEY) STRICT;
