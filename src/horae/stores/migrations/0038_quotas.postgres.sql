-- before the code: how much of an organisation may wait, and how many jobs it may have; those that were deleted keep
-- their numbers, which nobody is given again.
ALTER TABLE organisations ADD COLUMN most_waiting bigint;
ALTER TABLE organisations ADD COLUMN most_jobs bigint;
ALTER TABLE organisations ADD COLUMN deleted_at bigint;
