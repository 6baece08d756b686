"""A whole cluster in one process, on a virtual clock, with every fault decided by one seed: see docs/explanation/simulation.md."""
