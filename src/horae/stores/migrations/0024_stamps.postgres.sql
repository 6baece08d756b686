-- before the code: who last started runs under a key leaves a number there that nobody uses twice (core.policy.grants).

ALTER TABLE limits ADD COLUMN stamp bigint NOT NULL DEFAULT 0;
