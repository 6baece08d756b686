-- before the code: who leads is told, once for each election; and addresses of pings can be made anew.

-- A renewal keeps the term, and who resigns has no owner: neither is an election.
CREATE FUNCTION tell_leader() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO events (stamp, at, kind, fence, name) VALUES (event_stamp(), event_moment(), 'node.leading', NEW.term, NEW.owner);
  RETURN NULL;
END $$;
CREATE TRIGGER leases_made AFTER INSERT ON leases FOR EACH ROW
WHEN (NEW.name = 'leader' AND NEW.owner <> '') EXECUTE FUNCTION tell_leader();
CREATE TRIGGER leases_taken AFTER UPDATE ON leases FOR EACH ROW
WHEN (NEW.name = 'leader' AND NEW.owner <> '' AND OLD.term <> NEW.term) EXECUTE FUNCTION tell_leader();

-- How often the address of a watched job was made anew; of most it never was.
CREATE TABLE ping_editions (job_id bigint PRIMARY KEY, edition bigint NOT NULL);
