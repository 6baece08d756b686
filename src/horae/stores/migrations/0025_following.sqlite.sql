-- before the code: jobs that come after others, or listen to others, are found by their owner, and no others are read.

CREATE INDEX jobs_following ON jobs (org, owner, id)
WHERE deleted_at IS NULL AND (policy LIKE '%"after":[%' OR triggers LIKE '%"on":_"%');
