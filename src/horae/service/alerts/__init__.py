"""Alerts: rules and channels (definitions), what is going on (watching), and what is told (telling).

    events ─► signs ─► alerts, with the reader's place ─► groups ─► deliveries ─► channels

What must stay true: each step is one transaction that goes on from what the one before has written. Whoever dies in
between has told nothing that is not told again; a message that was handed over and not noted so is sent once more,
under the same key.
"""
