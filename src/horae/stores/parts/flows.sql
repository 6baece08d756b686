-- drop_endings --
DELETE FROM endings WHERE id IN {ids};

-- load_parents [claim] --
SELECT id, priority, resumes, parent_id FROM live WHERE id IN {ids};

-- load_flows [claim] --
SELECT f.run_id, f.job_id, f.version, f.document, f.adopted, COALESCE(l.data, h.data), COALESCE(l.priority, h.priority),
  l.cancel, COALESCE(l.reason, h.reason), l.id IS NULL
FROM flows f LEFT JOIN live l ON l.id = f.run_id LEFT JOIN history h ON h.id = f.run_id
WHERE f.run_id IN {ids};

-- load_tasks [claim] --
SELECT parent_id, id, task, state FROM live WHERE parent_id IN {ids}
UNION ALL SELECT parent_id, id, task, state FROM history WHERE parent_id IN {ids};

-- load_results [claim] --
SELECT id, result FROM history WHERE id IN {ids} AND result IS NOT NULL;

-- live_tasks --
SELECT id, parent_id FROM live WHERE parent_id IN {ids};
