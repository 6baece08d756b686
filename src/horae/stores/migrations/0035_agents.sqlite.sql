-- before the code: agents that join by a token that is good once, have a credential of their own, and can be evicted.

ALTER TABLE nodes ADD COLUMN evicted_at integer;

-- `used_at`: when a token to join by was used. `next_hash`: of the secret that replaces this one as soon as it is used;
-- `renewed_at`: when that happened last.
ALTER TABLE tokens ADD COLUMN used_at integer;
ALTER TABLE tokens ADD COLUMN next_hash text;
ALTER TABLE tokens ADD COLUMN renewed_at integer;
