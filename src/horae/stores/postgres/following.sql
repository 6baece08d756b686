-- hold_following --
-- Held to the end of the transaction.
SELECT pg_advisory_xact_lock(hashtextextended('after ' || $1::text, 0));
