-- hold_following --
-- There is one writer: nobody else writes meanwhile.
SELECT $1;
