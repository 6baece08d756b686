-- before the code: which jobs have a tag is read from an index. The rows are kept by the table of jobs itself, so whoever
-- writes a job need not think of them; a job without tags costs one look at its policy.
CREATE TABLE job_tags (
  tag text NOT NULL,
  org integer NOT NULL,
  job_id bigint NOT NULL,
  PRIMARY KEY (tag, org, job_id)
);

CREATE FUNCTION keep_tags() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'UPDATE' AND OLD.policy LIKE '%"tags":[%' THEN
    DELETE FROM job_tags WHERE org = OLD.org AND job_id = OLD.id
      AND tag IN (SELECT json_array_elements_text(OLD.policy::json -> 'tags'));
  END IF;
  IF NEW.deleted_at IS NULL AND NEW.part_of IS NULL THEN
    INSERT INTO job_tags SELECT tag, NEW.org, NEW.id FROM json_array_elements_text(NEW.policy::json -> 'tags') AS tag
    ON CONFLICT DO NOTHING;
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER jobs_tagged AFTER INSERT ON jobs
FOR EACH ROW WHEN (NEW.policy LIKE '%"tags":[%') EXECUTE FUNCTION keep_tags();

CREATE TRIGGER jobs_retagged AFTER UPDATE ON jobs
FOR EACH ROW WHEN ((OLD.policy, OLD.org, OLD.deleted_at) IS DISTINCT FROM (NEW.policy, NEW.org, NEW.deleted_at)
  AND (OLD.policy LIKE '%"tags":[%' OR NEW.policy LIKE '%"tags":[%')) EXECUTE FUNCTION keep_tags();

INSERT INTO job_tags
SELECT DISTINCT t.tag, j.org, j.id FROM jobs j CROSS JOIN LATERAL json_array_elements_text(j.policy::json -> 'tags') AS t(tag)
WHERE j.deleted_at IS NULL AND j.part_of IS NULL AND j.policy LIKE '%"tags":[%';
