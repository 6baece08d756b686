-- standing_of --
SELECT l.queue, l.needs, (SELECT d.document FROM demands d WHERE d.id = l.demand), l.start_by, l.waits_for, l.latest_at,
  l.cancel_note
FROM live l WHERE l.id = $1;
