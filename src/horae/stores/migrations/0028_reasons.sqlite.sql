-- before the code: who wants a live run cancelled goes with it into history; and since when a segment has its owner.

ALTER TABLE live ADD COLUMN cancel_note text;
ALTER TABLE segments ADD COLUMN since_at integer;
