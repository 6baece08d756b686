-- list_triggers --
SELECT d.trigger_id, d.next_at, d.last_at, d.job_id, j.version, j.triggers
FROM due d JOIN jobs j ON j.id = d.job_id WHERE j.deleted_at IS NULL AND {where} ORDER BY d.trigger_id;

-- live_columns --
{run_columns_live};

-- history_run_columns --
{run_columns_history};

-- job_of_trigger --
SELECT job_id FROM due WHERE trigger_id = $1;

-- made_at --
SELECT created_at FROM live WHERE id = $1 UNION ALL SELECT created_at FROM history WHERE id = $1;
