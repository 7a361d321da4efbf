"""The step of the language that this version supports; everything later is refused."""

from __future__ import annotations

SUPPORTED_STEP = 3
"""The last supported step of the language (`x-step` in the schema)."""

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
"""The step that introduces a variable, field or function of expressions."""
