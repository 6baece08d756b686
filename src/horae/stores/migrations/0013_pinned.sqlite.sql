-- before the code: one more index
-- Runs that only one node may take, found by it without a look at all the others.
CREATE INDEX live_pinned ON live (pin, kind, priority DESC, due_at, id) WHERE state = 0 AND pin IS NOT NULL;
