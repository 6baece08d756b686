-- before the code: who leads is told, once for each election; and addresses of pings can be made anew.

-- A renewal keeps the term, and who resigns has no owner: neither is an election.
CREATE TRIGGER leases_made AFTER INSERT ON leases WHEN new.name = 'leader' AND new.owner <> ''
BEGIN
  INSERT INTO events (at, kind, fence, name)
  VALUES (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000, 'node.leading', new.term, new.owner);
END;
CREATE TRIGGER leases_taken AFTER UPDATE OF term ON leases
WHEN new.name = 'leader' AND new.owner <> '' AND old.term <> new.term
BEGIN
  INSERT INTO events (at, kind, fence, name)
  VALUES (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000, 'node.leading', new.term, new.owner);
END;

-- How often the address of a watched job was made anew; of most it never was.
CREATE TABLE ping_editions (job_id INTEGER PRIMARY KEY, edition INTEGER NOT NULL) STRICT;
