-- before the code: how much of an organisation may wait, and how many jobs it may have; those that were deleted keep
-- their numbers, which nobody is given again.
ALTER TABLE organisations ADD COLUMN most_waiting INTEGER;
ALTER TABLE organisations ADD COLUMN most_jobs INTEGER;
ALTER TABLE organisations ADD COLUMN deleted_at INTEGER;
