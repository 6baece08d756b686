-- before the code: nodes that other nodes reach, agents that come in through one of them, and what operators want of them.
ALTER TABLE nodes ADD COLUMN grpc text NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN via text NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN wanted text NOT NULL DEFAULT 'live';
