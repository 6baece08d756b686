-- load_ids --
SELECT name, value FROM ids;

-- save_ids --
UPDATE ids SET value = CASE name WHEN 'job' THEN $1 WHEN 'trigger' THEN $2 ELSE $3 END;
