-- before the code: an installation that has run before keeps all of its history, unless its settings say otherwise.

INSERT INTO settings (name, value)
SELECT 'retention', 'all' WHERE EXISTS (SELECT 1 FROM nodes) OR EXISTS (SELECT 1 FROM settings);
