-- load_fates --
-- Of each state the newest, which an index has; of these the newest of all.
SELECT j.value, h.id, h.state FROM {ids} AS j CROSS JOIN history h ON h.id IN (
  SELECT id FROM (
    SELECT * FROM (SELECT id FROM history WHERE job_id = j.value AND state = {succeeded} AND parent_id IS NULL ORDER BY id DESC LIMIT $2) AS s0
    UNION ALL SELECT * FROM (SELECT id FROM history WHERE job_id = j.value AND state = {failed} AND parent_id IS NULL ORDER BY id DESC LIMIT $2) AS s1
    UNION ALL SELECT * FROM (SELECT id FROM history WHERE job_id = j.value AND state = {timed_out} AND parent_id IS NULL ORDER BY id DESC LIMIT $2) AS s2
    UNION ALL SELECT * FROM (SELECT id FROM history WHERE job_id = j.value AND state = {cancelled} AND parent_id IS NULL ORDER BY id DESC LIMIT $2) AS s3
    UNION ALL SELECT * FROM (SELECT id FROM history WHERE job_id = j.value AND state = {skipped} AND parent_id IS NULL ORDER BY id DESC LIMIT $2) AS s4
    UNION ALL SELECT * FROM (SELECT id FROM history WHERE job_id = j.value AND state = {coalesced} AND parent_id IS NULL ORDER BY id DESC LIMIT $2) AS s5) AS ends
  ORDER BY id DESC LIMIT $2);

-- count_between --
SELECT b.key, h.state, count(*) FROM json_each($1) AS b
CROSS JOIN history h ON h.job_id = $2 AND h.state IN ({succeeded}, {failed}, {timed_out}, {cancelled}, {skipped}, {coalesced})
  AND h.id >= json_extract(b.value, '$[0]') AND h.id < json_extract(b.value, '$[1]')
GROUP BY 1, 2;

-- load_marks --
SELECT h.id, h.job_id, h.state, h.due_at, h.started_at, h.finished_at FROM {ids} AS j
CROSS JOIN history h ON h.id >= j.value AND h.id < j.value + $2 AND h.parent_id IS NULL
WHERE $3 IS NULL OR (SELECT o.org FROM jobs o WHERE o.id = h.job_id) = $3;

-- load_marks_of --
-- Of each state the newest, which an index has; of these the newest of all.
SELECT h.id, h.job_id, h.state, h.due_at, h.started_at, h.finished_at FROM {ids} AS j CROSS JOIN history h ON h.id IN (
  SELECT id FROM (
    SELECT * FROM (SELECT id FROM history WHERE job_id = j.value AND state = {succeeded} AND parent_id IS NULL
      AND id >= $2 AND id < $3 ORDER BY id DESC LIMIT $4) AS s0
    UNION ALL SELECT * FROM (SELECT id FROM history WHERE job_id = j.value AND state = {failed} AND parent_id IS NULL
      AND id >= $2 AND id < $3 ORDER BY id DESC LIMIT $4) AS s1
    UNION ALL SELECT * FROM (SELECT id FROM history WHERE job_id = j.value AND state = {timed_out} AND parent_id IS NULL
      AND id >= $2 AND id < $3 ORDER BY id DESC LIMIT $4) AS s2
    UNION ALL SELECT * FROM (SELECT id FROM history WHERE job_id = j.value AND state = {cancelled} AND parent_id IS NULL
      AND id >= $2 AND id < $3 ORDER BY id DESC LIMIT $4) AS s3
    UNION ALL SELECT * FROM (SELECT id FROM history WHERE job_id = j.value AND state = {skipped} AND parent_id IS NULL
      AND id >= $2 AND id < $3 ORDER BY id DESC LIMIT $4) AS s4
    UNION ALL SELECT * FROM (SELECT id FROM history WHERE job_id = j.value AND state = {coalesced} AND parent_id IS NULL
      AND id >= $2 AND id < $3 ORDER BY id DESC LIMIT $4) AS s5) AS ends
  ORDER BY id DESC LIMIT $4)
UNION ALL SELECT id, job_id, state, due_at, started_at, NULL FROM live WHERE gate IN {ids} AND parent_id IS NULL
UNION ALL SELECT id, job_id, state, due_at, started_at, NULL FROM live WHERE gate IS NULL AND job_id IN {ids} AND parent_id IS NULL;

-- find_failing --
-- Of each bad end the newest, which an index has; of their jobs those that were neither done nor cancelled since.
SELECT id FROM (
  SELECT job_id, max(id) AS id FROM (
    SELECT * FROM (SELECT job_id, id FROM history WHERE state > {succeeded} AND state = {failed} AND id >= $1
      AND parent_id IS NULL ORDER BY id DESC LIMIT $3) AS s0
    UNION ALL SELECT * FROM (SELECT job_id, id FROM history WHERE state > {succeeded} AND state = {timed_out} AND id >= $1
      AND parent_id IS NULL ORDER BY id DESC LIMIT $3) AS s1) AS ends
  GROUP BY job_id ORDER BY 2 DESC) AS bad
WHERE (SELECT j.id FROM jobs j WHERE j.id = bad.job_id AND j.deleted_at IS NULL AND (CAST($2 AS integer) IS NULL OR j.org = $2)) IS NOT NULL
  AND coalesce((SELECT max(h.id) FROM history h WHERE h.job_id = bad.job_id AND h.state = {succeeded} AND h.parent_id IS NULL), 0) < id
  AND coalesce((SELECT max(h.id) FROM history h WHERE h.job_id = bad.job_id AND h.state = {cancelled} AND h.parent_id IS NULL), 0) < id
ORDER BY id DESC LIMIT $4;
