"""Measurements of Horae, one command per figure: `python -m bench list`."""
