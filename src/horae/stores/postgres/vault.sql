-- get_sealed [claim] --
SELECT name, sealed FROM secrets WHERE org = $1 AND name = ANY($2::text[]);
