"""Commands of the shell itself, by what they change."""

from __future__ import annotations

FOLDER_COMMANDS = frozenset(("cd", "pushd", "popd"))
LEAVING = frozenset(("exit", "return", "continue", "break"))
"""Commands from which the shell does not go on to the next."""
CONTROLLING = FOLDER_COMMANDS | LEAVING | {"set", "shopt", "enable"}

READERS = frozenset(("read", "mapfile", "readarray", "getopts"))
"""Commands that assign to the variables that they name."""
DECLARERS = frozenset(("declare", "export", "local", "readonly", "typeset", "unset"))
"""Commands that declare variables, where the grammar sees no declaration (`\\export x=y`)."""
MOVERS = frozenset(("set", "shift", "source", "."))
"""Commands that may change `$1`, `$2` and so on."""
ASSIGNING = MOVERS | READERS | DECLARERS | {"printf", "let"}
"""Commands after which variables may have other values (`printf -v`)."""

NAMING = READERS | DECLARERS | {"[", "test", "let", "printf", "wait"}
"""Commands of which some words are variables or numbers."""
EXPANDING = frozenset(("compgen", "complete"))
"""Commands that expand words of theirs, whatever the quotes."""
EVALUATING = NAMING | EXPANDING
