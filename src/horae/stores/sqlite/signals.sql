-- load_answers --
SELECT id, answers, state = {blocked} AND reason = 'signal', awaits FROM live WHERE id IN {ids};

-- lock_callers --
SELECT id, answers, awaits, cancel, state = {blocked}, CASE WHEN overlap >= 2 AND gate IS NOT NULL THEN job_id END, followed,
  EXISTS (SELECT 1 FROM live c WHERE c.parent_id = live.id)
FROM live WHERE id IN {ids};
