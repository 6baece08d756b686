"""Jobs and their triggers: submitted, listed, exported, edited."""
