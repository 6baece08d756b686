-- before the code: idempotency keys are dropped by age, all the time.
CREATE INDEX idempotency_age ON idempotency (created_at);
