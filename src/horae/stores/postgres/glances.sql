-- load_fates --
-- Of each state the newest, which an index has; of these the newest of all.
SELECT j.value, h.id, h.state FROM {ids} AS j CROSS JOIN LATERAL (
  SELECT id, state FROM (
    SELECT * FROM (SELECT id, state FROM history WHERE job_id = j.value AND state = {succeeded} AND parent_id IS NULL ORDER BY id DESC LIMIT $2) AS s0
    UNION ALL SELECT * FROM (SELECT id, state FROM history WHERE job_id = j.value AND state = {failed} AND parent_id IS NULL ORDER BY id DESC LIMIT $2) AS s1
    UNION ALL SELECT * FROM (SELECT id, state FROM history WHERE job_id = j.value AND state = {timed_out} AND parent_id IS NULL ORDER BY id DESC LIMIT $2) AS s2
    UNION ALL SELECT * FROM (SELECT id, state FROM history WHERE job_id = j.value AND state = {cancelled} AND parent_id IS NULL ORDER BY id DESC LIMIT $2) AS s3
    UNION ALL SELECT * FROM (SELECT id, state FROM history WHERE job_id = j.value AND state = {skipped} AND parent_id IS NULL ORDER BY id DESC LIMIT $2) AS s4
    UNION ALL SELECT * FROM (SELECT id, state FROM history WHERE job_id = j.value AND state = {coalesced} AND parent_id IS NULL ORDER BY id DESC LIMIT $2) AS s5) AS ends
  ORDER BY id DESC LIMIT $2) AS h;

-- count_between --
SELECT CAST(b.place AS integer) - 1, h.state, count(*)
FROM jsonb_array_elements(CAST(CAST($1 AS text) AS jsonb)) WITH ORDINALITY AS b(pair, place)
JOIN history h ON h.job_id = $2 AND h.state IN ({succeeded}, {failed}, {timed_out}, {cancelled}, {skipped}, {coalesced})
  AND h.id >= CAST(b.pair ->> 0 AS bigint) AND h.id < CAST(b.pair ->> 1 AS bigint)
GROUP BY 1, 2;
