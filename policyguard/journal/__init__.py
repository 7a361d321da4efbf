"""The event log: one hash chain of events per session, one event per line.

Its format is policyguard's own trace format (`format`), so `policyguard simulate` replays it.
`journal` writes, `reader` reads events back, `verify` detects tampering. Import names from the
modules, so that a program that only reads traces loads nothing else.
"""
