-- before the code: what the bearer of a token may do. Those made before may do everything, as they could.
ALTER TABLE tokens ADD COLUMN role text NOT NULL DEFAULT 'admin';
