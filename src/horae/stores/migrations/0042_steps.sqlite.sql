-- before the code: nothing here. With SQLite an event is of one run.
SELECT 1;
