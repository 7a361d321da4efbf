"""The event log: one chain of events a session, one event a line.

Its format is policyguard's own trace format (`format`), so `policyguard simulate` replays it.
`journal` writes, `reading` gives the events back, `verify` tells whether anybody has been at them.
Names are imported from the modules, so that who only reads a trace loads nothing else.
"""
