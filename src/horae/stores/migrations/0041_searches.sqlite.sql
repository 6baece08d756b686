-- before the code: nothing here. With SQLite, names are read from the index of names.
SELECT 1;
