-- tell --
-- With $3 it goes on.
UPDATE live SET answers = $2, state = CASE WHEN CAST($3 AS integer) = 1 THEN {waiting_state} ELSE state END,
  reason = CASE WHEN CAST($3 AS integer) = 1 THEN {waiting_reason} ELSE reason END, attempt = attempt - CAST($3 AS integer),
  eligible_at = CASE WHEN CAST($3 AS integer) = 1 THEN NULL ELSE eligible_at END,
  awaits = CASE WHEN CAST($3 AS integer) = 1 THEN NULL ELSE awaits END,
  note = CASE WHEN CAST($3 AS integer) = 1 THEN NULL ELSE note END
WHERE id = $1 RETURNING id, demand, kind;

-- load_call_ends --
SELECT parent_id, id, task, state, message, result FROM history WHERE id IN {ids} AND parent_id IS NOT NULL;

-- load_awaiting --
SELECT {run_columns_live} FROM live WHERE state = {blocked} AND awaits = $1 ORDER BY id LIMIT $2;

-- load_awaiting_of --
SELECT {run_columns_live} FROM live WHERE state = {blocked} AND awaits = $1 AND (id = $3 OR parent_id = $3)
ORDER BY id LIMIT $2;

-- load_edition --
SELECT edition FROM ping_editions WHERE job_id = $1;

-- next_edition --
INSERT INTO ping_editions (job_id, edition) VALUES ($1, 1)
ON CONFLICT (job_id) DO UPDATE SET edition = ping_editions.edition + 1 RETURNING edition;
