"""What happened, for others. The transactions that do the work write it down (stores.events); here it is read,
described as CloudEvents (documents), handed to whoever follows (feed), and published over a broker where there is one
(publishing).

Every event is told at least once, and those of a run in their order, because each reader goes on from where it was: a
place in the store, not a message that can be lost.
"""
