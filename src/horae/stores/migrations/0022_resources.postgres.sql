-- before the code: what an agent offers beside its slots, its slots by kind where they differ, and what was free of the
-- former when it last said so. JSON; nodes of before offer slots alone.

ALTER TABLE nodes ADD COLUMN resources text NOT NULL DEFAULT '{}';
ALTER TABLE nodes ADD COLUMN capacity text NOT NULL DEFAULT '{}';
ALTER TABLE nodes ADD COLUMN free text NOT NULL DEFAULT '{}';
