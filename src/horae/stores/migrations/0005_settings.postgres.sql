-- before the code: what a cluster keeps in common, and which agent a name belongs to.
CREATE TABLE settings (name text PRIMARY KEY, value text NOT NULL);
ALTER TABLE nodes ADD COLUMN identity text NOT NULL DEFAULT '';
