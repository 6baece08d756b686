-- load_answers --
SELECT id, answers, state = {blocked} AND reason = 'signal', awaits FROM live WHERE id IN {ids};

-- tell --
UPDATE live SET answers = $2, state = CASE WHEN $3 THEN {waiting_state} ELSE state END,
  reason = CASE WHEN $3 THEN {waiting_reason} ELSE reason END, attempt = attempt - $3,
  eligible_at = CASE WHEN $3 THEN NULL ELSE eligible_at END, awaits = CASE WHEN $3 THEN NULL ELSE awaits END,
  note = CASE WHEN $3 THEN NULL ELSE note END
WHERE id = $1;
