-- save_alerts --
-- All of a batch in one statement. What was acknowledged stays so while it is open.
INSERT INTO alerts (org, rule, subject, name, state, streak, count, since_at, last_at, text, run_id, changed_at, told_count,
  told_at, remind_at, acked_at, acked_by, stands)
SELECT value ->> 'org', value ->> 'rule', value ->> 'subject', value ->> 'name', value ->> 'state', value ->> 'streak',
  value ->> 'count', value ->> 'since_at', value ->> 'last_at', value ->> 'text', value ->> 'run_id',
  value ->> 'changed_at', value ->> 'told_count', value ->> 'told_at', value ->> 'remind_at', value ->> 'acked_at',
  value ->> 'acked_by', value ->> 'stands'
FROM json_each($1) AS t
WHERE EXISTS (SELECT 1 FROM alert_rules r WHERE r.org = t.value ->> 'org' AND r.name = t.value ->> 'rule')
ON CONFLICT (org, rule, subject) DO UPDATE SET name = excluded.name, state = excluded.state, streak = excluded.streak,
  count = excluded.count, since_at = excluded.since_at, last_at = excluded.last_at, text = excluded.text,
  run_id = excluded.run_id,
  changed_at = CASE WHEN alerts.acked_at IS NOT NULL AND alerts.state = 'open' AND excluded.state = 'open' THEN NULL
    ELSE excluded.changed_at END,
  told_count = excluded.told_count, told_at = excluded.told_at, remind_at = excluded.remind_at,
  acked_at = CASE WHEN alerts.state = 'open' AND excluded.state = 'open' THEN alerts.acked_at ELSE excluded.acked_at END,
  acked_by = CASE WHEN alerts.state = 'open' AND excluded.state = 'open' THEN alerts.acked_by ELSE excluded.acked_by END,
  stands = excluded.stands;

-- list_unusual --
SELECT job_id FROM durations WHERE json_extract(baseline, '$[8]') >= $1 ORDER BY job_id LIMIT $2;

-- add_deliveries --
INSERT INTO alert_deliveries (org, rule, number, channel, message, state, tries, next_at, made_at, error)
SELECT $1, $2, $3, value, $5, 'waiting', 0, $6, $6, '' FROM json_each($4) WHERE true
ON CONFLICT (org, rule, number, channel) DO NOTHING;

-- take_deliveries --
UPDATE alert_deliveries SET tries = tries + 1, next_at = $2
WHERE id IN (SELECT id FROM alert_deliveries WHERE state = 'waiting' AND next_at <= $1 ORDER BY next_at, id LIMIT $3)
RETURNING id, org, rule, number, channel, message, state, tries, next_at, made_at, sent_at, error;
