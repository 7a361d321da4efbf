"""Which step of the language this version has reached: what comes later is refused."""

from __future__ import annotations

STEP = 3
"""The step of the language that this version has reached (`x-step` in the schema)."""

NAME_STEPS = {
    "call.paths": "4",
    "call.urls": "4",
    "mark": "4",
    "session.progress": "2",
    "sql": "4",
    "finds": "4",
    "runs": "4",
    "only_runs": "4",
    "opaque": "4",
}
"""Variables, fields and functions of expressions, and the step that brings them to life."""
