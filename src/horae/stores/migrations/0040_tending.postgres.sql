-- before the code: whoever works with the tables need not own them. What history needs of their owner while servers run
-- is this function, which does nothing else, with the rights of the role that migrates.

-- `part` is a partition of history, or history while it has none; it is about runs from `low` on and below `high`.
-- Locks, and how long to wait for them, are the caller's.
DO $make$
BEGIN
  EXECUTE format($function$
    CREATE FUNCTION horae_tend_history(step text, part text, low bigint, high bigint) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = %1$I, pg_temp AS $body$
    DECLARE
      is_parted boolean := (SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass('history'));
      head text := 'history_' || high;
      views text[];
      rights text[];
      one text;
    BEGIN
      IF NOT is_parted AND part <> 'history' OR is_parted AND NOT EXISTS (
        SELECT 1 FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = to_regclass('history') AND c.relname = part
          AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('history')))
      THEN
        RAISE EXCEPTION '%% is no part of history', part USING ERRCODE = '22023';
      END IF;
      IF step = 'bind' THEN
        EXECUTE format('ALTER TABLE %%I ADD CONSTRAINT history_bound CHECK (%%s) NOT VALID', part,
          concat_ws(' AND ', 'id >= ' || low, 'id < ' || high));
      ELSIF step = 'validate' THEN
        EXECUTE format('ALTER TABLE %%I VALIDATE CONSTRAINT history_bound', part);
      ELSIF step = 'unbind' THEN
        EXECUTE format('ALTER TABLE %%I DROP CONSTRAINT IF EXISTS history_bound', part);
      ELSIF step = 'drop' AND is_parted THEN
        EXECUTE format('DROP TABLE %%I', part);
      ELSIF step = 'close' AND is_parted THEN
        EXECUTE format('ALTER TABLE history DETACH PARTITION %%I', part);
        EXECUTE format('ALTER TABLE history ATTACH PARTITION %%I FOR VALUES FROM (%%s) TO (%%s)', part, low, high);
        EXECUTE format('ALTER TABLE %%I DROP CONSTRAINT history_bound', part);
      ELSIF step = 'move' AND NOT is_parted THEN
        -- What was bound to the table is bound to its new name anew: a trigger of a partition does not fire for what
        -- comes through the parent, and a view would go on reading the lowest partition.
        views := ARRAY(
          SELECT DISTINCT format('CREATE OR REPLACE VIEW %%s AS %%s', v.oid::regclass, pg_get_viewdef(v.oid))
          FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid JOIN pg_class v ON v.oid = r.ev_class
          WHERE d.classid = 'pg_rewrite'::regclass AND d.refobjid = to_regclass('history') AND v.relkind = 'v'
            AND v.relowner = (SELECT relowner FROM pg_class WHERE oid = to_regclass('history')));
        rights := ARRAY(
          SELECT format('GRANT %%s ON history TO %%s', a.privilege_type,
            CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END)
          FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = to_regclass('history') AND a.grantee <> c.relowner);
        ALTER TABLE history RENAME TO history_0;
        ALTER INDEX history_pkey RENAME TO history_pkey_0;
        ALTER INDEX history_job_state RENAME TO history_job_state_0;
        ALTER INDEX history_state RENAME TO history_state_0;
        ALTER INDEX history_parent RENAME TO history_parent_0;
        CREATE TABLE history (LIKE history_0 INCLUDING DEFAULTS) PARTITION BY RANGE (id);
        ALTER TABLE history ADD PRIMARY KEY (id);
        CREATE INDEX history_job_state ON history (job_id, state, id);
        CREATE INDEX history_state ON history (state, id) WHERE state > 10;
        CREATE INDEX history_parent ON history (parent_id) WHERE parent_id IS NOT NULL;
        EXECUTE format('ALTER TABLE history ATTACH PARTITION history_0 FOR VALUES FROM (MINVALUE) TO (%%s)', high);
        ALTER TABLE history_0 DROP CONSTRAINT history_bound;
        DROP TRIGGER history_untold ON history_0;
        DROP TRIGGER history_followed ON history_0;
        DROP TRIGGER history_ended ON history_0;
        CREATE TRIGGER history_untold AFTER INSERT ON history
        REFERENCING NEW TABLE AS ended FOR EACH STATEMENT EXECUTE FUNCTION note_untold();
        CREATE TRIGGER history_followed AFTER INSERT ON history
        FOR EACH ROW WHEN (NEW.followed) EXECUTE FUNCTION note_ending();
        CREATE TRIGGER history_ended AFTER INSERT ON history
        REFERENCING NEW TABLE AS ended FOR EACH STATEMENT EXECUTE FUNCTION tell_ended();
        FOREACH one IN ARRAY views || rights LOOP
          EXECUTE one;
        END LOOP;
      ELSE
        RAISE EXCEPTION 'history cannot be tended by %%', step USING ERRCODE = '22023';
      END IF;
      IF step IN ('move', 'close') THEN  -- whatever its id, a run that ends has a place
        EXECUTE format('CREATE TABLE %%I (LIKE history INCLUDING ALL) '
          'WITH (autovacuum_vacuum_insert_scale_factor = 0.2)', head);
        EXECUTE format('ALTER TABLE history ATTACH PARTITION %%I FOR VALUES FROM (%%s) TO (MAXVALUE)', head, high);
      END IF;
    END
    $body$ $function$, current_schema());
END $make$;
REVOKE ALL ON FUNCTION horae_tend_history(text, text, bigint, bigint) FROM PUBLIC;
