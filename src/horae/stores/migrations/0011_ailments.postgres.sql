-- before the code: what the machine of a node is short of.

ALTER TABLE nodes ADD COLUMN ailment text NOT NULL DEFAULT '';
