"""Alerts: what rules make of events and absences, when that is told, and in which words.

rules      of what is to be told, to whom, and when not
channels   by which it is told
signs      what was seen: of a job, a node, a queue; good or bad
states     what becomes of an alert by a sign
messages   when those of a rule are told, together, and in which words
"""
