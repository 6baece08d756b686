-- before the code: roles that somebody has on some jobs, beyond the one in the organisation.
CREATE TABLE grants (
  id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
  org integer NOT NULL,
  job_id bigint,
  created_at bigint NOT NULL,
  who text NOT NULL,
  role text NOT NULL,
  tag text,
  queue text,
  created_by text NOT NULL
);
CREATE UNIQUE INDEX grants_by_who ON grants (org, who, coalesce(job_id, 0), coalesce(tag, ''), coalesce(queue, ''));
