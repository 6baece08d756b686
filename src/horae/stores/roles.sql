-- Roles of PostgreSQL for Horae:
--   {owner} owns the tables and migrates
--   {server} is what servers work with
--   {reader} looks
-- To be said by a superuser in the database of Horae: before the first `horae migrate`, and after each. Passwords are set
-- apart: ALTER ROLE {server} PASSWORD '...';
DO $roles$
DECLARE
  its_schema name := current_schema();
  role text;
  thing record;
BEGIN
  FOREACH role IN ARRAY ARRAY['{owner}', '{server}', '{reader}'] LOOP
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = role) THEN
      EXECUTE format('CREATE ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS', role);
    END IF;
  END LOOP;
  EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM PUBLIC, {server}, {reader}', its_schema);
  EXECUTE format('GRANT USAGE, CREATE ON SCHEMA %I TO {owner}', its_schema);
  EXECUTE format('GRANT USAGE ON SCHEMA %I TO {server}, {reader}', its_schema);

  -- What later migrations and new partitions make.
  EXECUTE format('ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA %I GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {server}', its_schema);
  EXECUTE format('ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA %I GRANT USAGE, SELECT, UPDATE ON SEQUENCES TO {server}', its_schema);
  EXECUTE format('ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA %I GRANT EXECUTE ON FUNCTIONS TO {server}', its_schema);

  -- What is there: of the owner alone, others may have theirs in the same schema.
  FOR thing IN
    SELECT c.oid::regclass AS id, c.relname, c.relkind FROM pg_class c
    WHERE c.relnamespace = its_schema::regnamespace AND c.relowner = '{owner}'::regrole AND c.relkind IN ('r', 'p', 'v', 'S')
  LOOP
    IF thing.relkind = 'S' THEN
      EXECUTE format('GRANT USAGE, SELECT, UPDATE ON SEQUENCE %s TO {server}', thing.id);
    ELSIF thing.relname = 'migrations' THEN
      EXECUTE format('REVOKE ALL ON %s FROM {server}', thing.id);
      EXECUTE format('GRANT SELECT ON %s TO {server}, {reader}', thing.id);
    ELSE
      EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO {server}', thing.id);
      -- Whoever looks sees no secrets, not even sealed or as their hash.
      IF thing.relname NOT IN ('secrets', 'tokens', 'sessions', 'devices', 'users', 'identities', 'settings', 'sources') THEN
        EXECUTE format('GRANT SELECT ON %s TO {reader}', thing.id);
      END IF;
    END IF;
  END LOOP;
  FOR thing IN
    SELECT p.oid::regprocedure AS id FROM pg_proc p
    WHERE p.pronamespace = its_schema::regnamespace AND p.proowner = '{owner}'::regrole
  LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO {server}', thing.id);
  END LOOP;
END $roles$;
