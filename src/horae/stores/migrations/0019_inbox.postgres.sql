-- before the code: tables and functions of their own
-- Work that other programs hand over inside their own transactions. Appended by them, emptied by Horae. Without a
-- unique index and without a foreign key: whoever hands over waits for nobody, and nobody waits for whoever does.
CREATE TABLE inbox (
  id bigserial NOT NULL,
  made_at bigint NOT NULL,
  run_at bigint,
  org integer NOT NULL,
  priority smallint,
  role text NOT NULL,
  owner text NOT NULL,
  job text NOT NULL,
  key text,
  data text
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX inbox_id ON inbox (id);

-- What could not become a run, and why: it waits here for a hand, or for its job to be resumed.
CREATE TABLE inbox_refused (
  id bigint PRIMARY KEY,
  made_at bigint NOT NULL,
  run_at bigint,
  refused_at bigint NOT NULL,
  org integer NOT NULL,
  priority smallint,
  role text NOT NULL,
  owner text NOT NULL,
  job text NOT NULL,
  key text,
  data text,
  code text NOT NULL,
  message text NOT NULL
);

-- For whom a role of the database hands work over: for one owner, of one organisation.
CREATE TABLE inbox_grants (
  role text PRIMARY KEY,
  org integer NOT NULL,
  owner text NOT NULL
);

-- How calls of horae_enqueue are understood. A later version takes every call that an earlier one took, and gives it
-- the same meaning; should it need other parameters, its migration makes the function anew and lets all roles of
-- inbox_grants call it.
CREATE FUNCTION horae_enqueue_version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 1';

-- Looks at shape and size only, and at who calls: whether the job exists, and what else runs, is for Horae to see once
-- the caller has committed. `session_user` is whoever logged in, whatever role was set since.
DO $make$
BEGIN
  EXECUTE format($function$
    CREATE FUNCTION horae_enqueue(job text, data jsonb DEFAULT NULL, key text DEFAULT NULL,
                                  priority integer DEFAULT NULL, run_at timestamptz DEFAULT NULL)
    RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, %1$I, pg_temp AS $body$
    DECLARE
      its_org integer;
      its_owner text;
      receipt bigint;
    BEGIN
      SELECT g.org, g.owner INTO its_org, its_owner FROM inbox_grants g WHERE g.role = session_user;
      IF NOT FOUND THEN
        IF session_user <> current_user THEN
          RAISE EXCEPTION 'the role %% may not hand work over to Horae', session_user USING ERRCODE = '42501',
            DETAIL = 'E_NOT_OWNER', HINT = format('let an operator say: horae inbox grant %%s --owner NAME', session_user);
        END IF;
        its_org := 1;  -- the role of Horae itself, whose tables these are
        its_owner := 'local';
      END IF;
      IF job IS NULL OR length(job) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION 'job must be the id or the key of a job, 1 to 200 characters; got %%',
          CASE WHEN job IS NULL THEN 'NULL' ELSE length(job) || ' characters' END
          USING ERRCODE = '22023', DETAIL = 'E_LEN', HINT = 'horae jobs lists ids and keys';
      END IF;
      IF jsonb_typeof(data) <> 'object' THEN
        RAISE EXCEPTION 'data must be a JSON object; got %%', jsonb_typeof(data)
          USING ERRCODE = '22023', DETAIL = 'E_TYPE', HINT = 'put it into one, such as {"value": 7}';
      END IF;
      IF octet_length(data::text) > 262144 THEN
        RAISE EXCEPTION 'data may have 256 KiB as JSON; got %% bytes', octet_length(data::text)
          USING ERRCODE = '22023', DETAIL = 'E_LEN', HINT = 'keep large data in a table of yours, and hand over its key';
      END IF;
      IF key !~ '^[!-~]{1,200}$' THEN
        RAISE EXCEPTION 'key must be 1 to 200 visible ASCII characters; got %% characters', length(key)
          USING ERRCODE = '22023', DETAIL = 'E_CHAR', HINT = 'an id of yours does well, such as order-17';
      END IF;
      IF priority NOT BETWEEN 0 AND 9 THEN
        RAISE EXCEPTION 'priority must be 0 to 9, where 9 goes first; got %%', priority
          USING ERRCODE = '22023', DETAIL = 'E_RANGE', HINT = 'leave it out for the priority of the job';
      END IF;
      IF run_at NOT BETWEEN '1970-01-01 00:00+00' AND '2199-12-31 23:59+00' THEN
        RAISE EXCEPTION 'run_at must lie in the years 1970 to 2199; got %%', run_at
          USING ERRCODE = '22023', DETAIL = 'E_TIME_RANGE', HINT = 'leave it out for now';
      END IF;
      INSERT INTO inbox (made_at, run_at, org, priority, role, owner, job, key, data)
      VALUES ((extract(epoch FROM clock_timestamp()) * 1000000)::bigint, (extract(epoch FROM run_at) * 1000000)::bigint,
              its_org, priority, session_user, its_owner, job, key, data::text)
      RETURNING id INTO receipt;
      RETURN receipt;
    END
    $body$ $function$, current_schema());
  -- A hint for whoever cannot wait for the next look, to be given after the commit: a notice takes a lock of the whole
  -- database until its transaction ends, so it must not be part of one that does anything else.
  EXECUTE format($function$
    CREATE FUNCTION horae_wake() RETURNS void LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $body$
    BEGIN
      IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
        RAISE EXCEPTION 'horae_wake is called after the commit, not inside the transaction' USING ERRCODE = '25001',
          DETAIL = 'E_CONFLICT', HINT = 'leave it out: Horae finds the work within a tenth of a second';
      END IF;
      PERFORM pg_notify(%L, '000000000000 inbox');
    END
    $body$ $function$, 'horae_' || left(md5(current_schema()), 16));
END $make$;
REVOKE ALL ON FUNCTION horae_enqueue(text, jsonb, text, integer, timestamptz) FROM PUBLIC;
REVOKE ALL ON FUNCTION horae_wake() FROM PUBLIC;
