"""The variables that most tests declare: a small version of those of policies."""

from __future__ import annotations

from policyguard.cel import (
    BOOL,
    DOUBLE,
    DYN,
    INT,
    STANDARD,
    STRING,
    TIMESTAMP,
    Declarations,
    Function,
    enum_of,
    list_of,
    map_of,
    record,
)

TOOL = enum_of("tool", frozenset({"bash", "read_file", "search"}))
CALL = record(
    {
        "tool": TOOL,
        "class": enum_of("class", frozenset({"file_read", "file_edit", "search"})),
        "args": map_of(STRING, DYN),
        "typed": record({"path": STRING, "limit": INT}, frozenset({"limit"}), name="call.typed"),
        "cwd": STRING,
        "urls": list_of(STRING),
        "parts": list_of(record({"name": STRING, "size": INT}, frozenset({"size"}), name="part")),
    },
    optional=frozenset({"cwd"}),
    name="call",
)
SESSION = record({"calls": INT, "cost": DOUBLE, "roles": list_of(STRING)}, name="session")
TAGS = record(
    {"environment": enum_of("environment", frozenset({"production", "test"}))}, name="tags"
)
MARK = record({"planned": BOOL, "seen": map_of(STRING, BOOL)}, name="mark")

COUNT = Function("count", SESSION, (TOOL,), INT, lambda session, tool: session["counts"][tool])
SAMPLE_DECLARATIONS = Declarations(
    {"call": CALL, "session": SESSION, "tags": TAGS, "mark": MARK, "now": TIMESTAMP},
    functions=(*STANDARD, COUNT),
)
