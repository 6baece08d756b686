-- before the code: what an agent offers beside its slots, its slots by kind where they differ, and what was free of the
-- former when it last said so. JSON; nodes of before offer slots alone.

ALTER TABLE nodes ADD COLUMN resources TEXT NOT NULL DEFAULT '{}';
ALTER TABLE nodes ADD COLUMN capacity TEXT NOT NULL DEFAULT '{}';
ALTER TABLE nodes ADD COLUMN free TEXT NOT NULL DEFAULT '{}';
