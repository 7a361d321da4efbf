"""Which parts of the policy language this version supports."""

SUPPORTED_STEP = 3
"""The last supported step of the language (`x-step` in the schema)."""

NAME_STEPS = {
    "session.progress": "2",
}
"""The step that introduces a variable, field or function of expressions."""
