-- before the code: which jobs have a tag is read from an index. The rows are kept by the table of jobs itself, so whoever
-- writes a job need not think of them; a job without tags costs one look at its policy.
CREATE TABLE job_tags (
  tag TEXT NOT NULL,
  org INTEGER NOT NULL,
  job_id INTEGER NOT NULL,
  PRIMARY KEY (tag, org, job_id)
) WITHOUT ROWID;

CREATE TRIGGER jobs_tagged AFTER INSERT ON jobs
WHEN NEW.policy LIKE '%"tags":[%' AND NEW.deleted_at IS NULL AND NEW.part_of IS NULL BEGIN
  INSERT INTO job_tags SELECT DISTINCT value, NEW.org, NEW.id FROM json_each(NEW.policy, '$.tags');
END;

CREATE TRIGGER jobs_retagged AFTER UPDATE ON jobs
WHEN (OLD.policy <> NEW.policy OR OLD.org <> NEW.org OR OLD.deleted_at IS NOT NEW.deleted_at)
  AND (OLD.policy LIKE '%"tags":[%' OR NEW.policy LIKE '%"tags":[%') BEGIN
  DELETE FROM job_tags WHERE org = OLD.org AND job_id = OLD.id AND tag IN (SELECT value FROM json_each(OLD.policy, '$.tags'));
  INSERT INTO job_tags SELECT DISTINCT value, NEW.org, NEW.id FROM json_each(NEW.policy, '$.tags')
  WHERE NEW.deleted_at IS NULL AND NEW.part_of IS NULL;
END;

INSERT INTO job_tags
SELECT DISTINCT t.value, j.org, j.id FROM jobs j, json_each(j.policy, '$.tags') AS t
WHERE j.deleted_at IS NULL AND j.part_of IS NULL AND j.policy LIKE '%"tags":[%';
