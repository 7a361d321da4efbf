"""The verbs that statements may have."""

from __future__ import annotations

VERB_OF_KIND = {
    **dict.fromkeys(("select", "union", "intersect", "except", "subquery"), "SELECT"),
    **{verb: verb.upper() for verb in ("insert", "update", "delete", "merge", "create", "drop")},
    **{verb: verb.upper() for verb in ("alter", "copy", "grant", "revoke", "set", "use", "commit")},
    **{verb: verb.upper() for verb in ("rollback", "describe", "show", "pragma", "attach")},
    **{verb: verb.upper() for verb in ("detach", "analyze", "kill", "comment", "execute")},
    "values": "VALUES",
    "truncatetable": "TRUNCATE",
    "transaction": "BEGIN",
}
"""Verbs by the kind of a tree. All other kinds are errors."""
KEYWORD_VERBS = frozenset(("CALL", "REPLACE"))
"""Verbs that a statement has by its first word, whatever the kind of its tree."""
EXPLAIN = "EXPLAIN"
VERBS = frozenset(VERB_OF_KIND.values()) | KEYWORD_VERBS | {EXPLAIN}
