-- before the code: which line of a node is the one that counts, and which process holds its name.

-- Every registration and every new line of a node takes session + 1; whatever an earlier line asks is refused.
ALTER TABLE nodes ADD COLUMN session INTEGER NOT NULL DEFAULT 0;
-- The line that took it: a registration whose answer was lost is recognised when it is repeated.
ALTER TABLE nodes ADD COLUMN line TEXT NOT NULL DEFAULT '';
-- For people: the process, as in 'pid 4711 on build-3'.
ALTER TABLE nodes ADD COLUMN holder TEXT NOT NULL DEFAULT '';
