"""A whole cluster in one process, on a virtual clock, with every fault decided by one seed.

What it can see and what not: docs/explanation/simulation.md.
"""
