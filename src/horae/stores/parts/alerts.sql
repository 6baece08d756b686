-- list_alert_rules --
SELECT org, name, document, version, created_at, updated_at FROM alert_rules
WHERE CAST($1 AS bigint) IS NULL OR org = $1 ORDER BY org, name;

-- load_spoken --
SELECT org, name, messages, told_at FROM alert_rules;

-- save_alert_rule --
INSERT INTO alert_rules (org, name, document, version, created_at, updated_at)
SELECT CAST($1 AS bigint), CAST($2 AS text), $3, 1, CAST($4 AS bigint), CAST($4 AS bigint)
WHERE COALESCE(CAST($5 AS bigint), 0) = 0 OR EXISTS (SELECT 1 FROM alert_rules WHERE org = $1 AND name = $2)
ON CONFLICT (org, name) DO UPDATE SET document = excluded.document, version = alert_rules.version + 1,
  updated_at = excluded.updated_at
WHERE CAST($5 AS bigint) IS NULL OR alert_rules.version = CAST($5 AS bigint)
RETURNING org, name, document, version, created_at, updated_at;

-- delete_alert_rule --
DELETE FROM alert_rules WHERE org = $1 AND name = $2 RETURNING name;

-- drop_alerts_of --
DELETE FROM alerts WHERE org = $1 AND rule = $2;

-- drop_deliveries_of --
DELETE FROM alert_deliveries WHERE org = $1 AND rule = $2;

-- begin_reader --
INSERT INTO event_readers (name, place) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING;

-- end_reader --
DELETE FROM event_readers WHERE name = $1 AND NOT EXISTS (SELECT 1 FROM alert_rules);

-- move_reader --
UPDATE event_readers SET place = $3 WHERE name = $1 AND place = $2 RETURNING name;

-- list_alert_channels --
SELECT org, name, document, version, created_at, updated_at FROM alert_channels WHERE org = $1 ORDER BY name;

-- save_alert_channel --
INSERT INTO alert_channels (org, name, document, version, created_at, updated_at)
SELECT CAST($1 AS bigint), CAST($2 AS text), $3, 1, CAST($4 AS bigint), CAST($4 AS bigint)
WHERE COALESCE(CAST($5 AS bigint), 0) = 0 OR EXISTS (SELECT 1 FROM alert_channels WHERE org = $1 AND name = $2)
ON CONFLICT (org, name) DO UPDATE SET document = excluded.document, version = alert_channels.version + 1,
  updated_at = excluded.updated_at
WHERE CAST($5 AS bigint) IS NULL OR alert_channels.version = CAST($5 AS bigint)
RETURNING org, name, document, version, created_at, updated_at;

-- delete_alert_channel --
DELETE FROM alert_channels WHERE org = $1 AND name = $2 RETURNING name;

-- load_job_facts --
SELECT id, org, owner, name, key, policy, part_of FROM jobs WHERE id IN {ids};

-- find_tasks --
SELECT id FROM history WHERE id IN {ids} AND parent_id IS NOT NULL;

-- load_alerts --
SELECT {alert_columns} FROM alerts WHERE subject IN {names};

-- load_alerts_of --
SELECT {alert_columns} FROM alerts WHERE rule IN {names};

-- drop_alerts --
DELETE FROM alerts WHERE id IN {ids};

-- remind --
UPDATE alerts SET changed_at = $1
WHERE state = 'open' AND acked_at IS NULL AND changed_at IS NULL AND remind_at <= $1 AND (stands OR count > told_count)
RETURNING id;

-- list_alerts --
SELECT {alert_columns} FROM alerts
WHERE state = 'open' AND (CAST($1 AS bigint) IS NULL OR org = $1) AND id > $2 ORDER BY id LIMIT $3;

-- acknowledge --
UPDATE alerts SET acked_at = COALESCE(acked_at, $3), acked_by = CASE WHEN acked_at IS NULL THEN $4 ELSE acked_by END,
  changed_at = NULL
WHERE id = $2 AND (CAST($1 AS bigint) IS NULL OR org = $1) AND state = 'open' RETURNING {alert_columns};

-- list_late --
SELECT job_id, min(due_at), max(id)
FROM (SELECT id, job_id, due_at FROM live WHERE state = {queued} AND due_at < $1 AND attempt = 0 AND parent_id IS NULL
  LIMIT $2) AS found
GROUP BY job_id;

-- save_disk --
INSERT INTO alert_disks (node, used, at) VALUES ($1, $2, $3)
ON CONFLICT (node) DO UPDATE SET used = excluded.used, at = excluded.at;

-- load_disks --
SELECT node, used, at FROM alert_disks WHERE at >= $1;

-- load_groups --
SELECT org, rule, sum(CASE state WHEN 'open' THEN 1 ELSE 0 END), sum(CASE state WHEN 'open' THEN 0 ELSE 1 END),
  sum(count - told_count), min(changed_at), max(last_at)
FROM alerts WHERE changed_at IS NOT NULL GROUP BY org, rule;

-- load_pending --
SELECT {alert_columns} FROM alerts WHERE org = $1 AND rule = $2 AND changed_at IS NOT NULL
ORDER BY CASE state WHEN 'open' THEN 0 ELSE 1 END, id LIMIT $3;

-- count_message --
UPDATE alert_rules SET messages = messages + 1, told_at = $4 WHERE org = $1 AND name = $2 AND messages = $3
RETURNING messages;

-- told_open --
UPDATE alerts SET changed_at = NULL, told_at = $3, told_count = count, remind_at = $4
WHERE org = $1 AND rule = $2 AND changed_at <= $3 AND state = 'open';

-- told_again --
UPDATE alerts SET state = 'counting', changed_at = NULL, told_at = NULL, told_count = 0, count = 0, remind_at = NULL,
  since_at = last_at
WHERE org = $1 AND rule = $2 AND changed_at <= $3 AND state = 'closed' AND streak > 0;

-- told_closed --
DELETE FROM alerts WHERE org = $1 AND rule = $2 AND changed_at <= $3 AND state = 'closed' AND streak = 0;

-- settle_delivery --
UPDATE alert_deliveries SET state = $3, next_at = $4, sent_at = $5, error = $6
WHERE id = $1 AND tries = $2 AND state = 'waiting';

-- next_delivery --
SELECT min(next_at) FROM alert_deliveries WHERE state = 'waiting';

-- list_deliveries --
SELECT id, org, rule, number, channel, message, state, tries, next_at, made_at, sent_at, error FROM alert_deliveries
WHERE org = $1 ORDER BY id DESC LIMIT $2;

-- drop_deliveries --
DELETE FROM alert_deliveries WHERE made_at < $1 AND state <> 'waiting';
