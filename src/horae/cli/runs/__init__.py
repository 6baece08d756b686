"""Runs: asked for, followed, cancelled, run again."""
