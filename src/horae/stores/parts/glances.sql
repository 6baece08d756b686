-- newest_ended_id --
SELECT max(id) FROM history;

-- made_from --
-- When the first run from an id on was made.
SELECT j.value, (SELECT h.created_at FROM history h WHERE h.id >= j.value ORDER BY h.id LIMIT 1) FROM {ids} AS j;
