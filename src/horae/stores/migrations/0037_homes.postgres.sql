-- before the code: since when somebody is a member, which decides where it comes in. 0: since before this was kept.
ALTER TABLE members ADD COLUMN added_at bigint NOT NULL DEFAULT 0;
