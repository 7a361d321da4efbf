"""Macros and reserved words.

With one variable: cel-spec langdef.md, "Macros". With two: cel-spec
tests/simple/testdata/macros2.textproto, where the first is an element's index or an entry's key.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

MacroKind = Literal["all", "exists", "exists_one", "filter", "map", "transformList", "transformMap"]


class Macro(msgspec.Struct, frozen=True):
    """What a macro computes, and its arguments: variables, a condition, a result."""

    kind: MacroKind
    variable_count: int
    has_condition: bool
    has_result: bool


MACROS: Final[dict[tuple[str, int], Macro]] = {
    ("all", 2): Macro("all", 1, True, False),
    ("all", 3): Macro("all", 2, True, False),
    ("exists", 2): Macro("exists", 1, True, False),
    ("exists", 3): Macro("exists", 2, True, False),
    ("exists_one", 2): Macro("exists_one", 1, True, False),
    ("existsOne", 2): Macro("exists_one", 1, True, False),
    ("existsOne", 3): Macro("exists_one", 2, True, False),
    ("filter", 2): Macro("filter", 1, True, False),
    ("map", 2): Macro("map", 1, False, True),
    ("map", 3): Macro("map", 1, True, True),
    ("transformList", 3): Macro("transformList", 2, False, True),
    ("transformList", 4): Macro("transformList", 2, True, True),
    ("transformMap", 3): Macro("transformMap", 2, False, True),
    ("transformMap", 4): Macro("transformMap", 2, True, True),
}
"""The macros over lists and maps, by name and number of arguments. `has` is the other macro."""

MACRO_NAMES: Final = frozenset({"has", *(name for name, _ in MACROS)})

RESERVED_WORDS: Final = frozenset(
    {
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "namespace",
        "package",
        "return",
        "var",
        "void",
        "while",
    }
)
"""cel-spec langdef.md, "Syntax": invalid as variables, valid as fields and functions."""
