-- before the code: words are looked for in the names of all jobs. An index that has these too is read in half the time
-- of the table; it stands in place of the one without.
CREATE INDEX jobs_searched ON jobs (org, id) INCLUDE (name) WHERE deleted_at IS NULL;
DROP INDEX jobs_live;
