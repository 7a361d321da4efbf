"""Limits on the cost of one expression.

The limits on source, depth and macro nesting apply at compile time, the rest to data at run time.
Exceeding one at run time raises `CelLimitError`, which no `&&`, `||`, `?:` or macro absorbs: an
undecided expression must not look decided.
"""

from __future__ import annotations

from typing import Final

import msgspec


class CostLimits(msgspec.Struct, frozen=True):
    """The engine's limits. Each exceeds what cel-spec requires (langdef.md, "Limits")."""

    max_source_length: int = 8 * 1024
    """Code points of one expression."""

    max_depth: int = 32
    """Levels of the syntax tree. A chain of `&&` or of `||` is one level; parentheses are none."""

    max_macro_nesting: int = 4
    """Macros inside the bodies of macros. Each level multiplies the iterations."""

    max_iterations: int = 10_000
    """Elements that all macros of one evaluation visit. A macro counts its whole list even if it
    stops early, so that the limit depends on the size of the data and not on its order."""

    max_compared_elements: int = 100_000
    """Elements that one comparison of lists or maps visits. It also ends comparisons of cyclic
    data."""

    max_read_elements: int = 1_000_000
    """Elements that operators and functions inside macros read in one evaluation, besides those the
    macros visit: of lists that are searched, compared, joined or built."""

    characters_per_element: int = 64
    """Code points (or bytes) of text that count as one read element."""

    max_string_length: int = 1024 * 1024
    """Code points (or bytes) of a string that an expression builds."""

    max_list_length: int = 100_000
    """Elements of a list that an expression builds."""


COST_LIMITS: Final = CostLimits()
