-- load_running [finish] --
SELECT id, fence FROM live WHERE state = {running} AND node = $1;

-- load_running_in_session [finish] --
-- No row at all: another session counts by now. A row of nothing: it holds nothing.
SELECT l.id, l.fence FROM nodes n LEFT JOIN live l ON l.node = n.name AND l.state = {running}
WHERE n.name = $1 AND n.session = $2;

-- load_running_of [finish] --
SELECT node, id, fence FROM live WHERE state = {running} AND node IN {names};

-- load_queued [claim] --
SELECT id, fence + 1, kind, priority, needs IS NOT NULL OR pin IS NOT NULL FROM live
WHERE state = {queued} ORDER BY kind, queue, priority DESC, pass, id LIMIT $1;

-- postpone --
-- What waits for a run that still writes, goes on waiting.
UPDATE live SET eligible_at = $2 WHERE id IN (
  SELECT w.id FROM live w WHERE w.state = {blocked} AND w.eligible_at <= $1 AND w.reason = 'destination_busy'
    AND EXISTS (SELECT 1 FROM live h WHERE h.id = w.waits_for AND h.state = {running})
  ORDER BY w.eligible_at LIMIT $3);
