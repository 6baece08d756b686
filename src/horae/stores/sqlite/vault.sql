-- get_sealed [claim] --
SELECT name, sealed FROM secrets WHERE org = $1 AND name IN (SELECT value FROM json_each($2));
