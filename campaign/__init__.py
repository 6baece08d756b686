"""The campaign: a real cluster, jobs that witness themselves, faults, and a check of what was promised."""
