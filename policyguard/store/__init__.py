"""Where state lasts: `protocol` is the promise, `memory` and `durable` (SQLite) keep it.

Names are imported from the modules, so that who needs no SQLite does not load it.
"""
