"""Counts what operators and functions inside macros read.

Outside macros each reads its data once, and the source of the data limits its size. A macro's body
may read the same data at every element, so reads there are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from policyguard.cel.errors import CelLimitError
from policyguard.cel.runtime import operators
from policyguard.cel.runtime.cost_limits import COST_LIMITS

_TEXTS: Final[frozenset[Any]] = frozenset({str, bytes})
_SIZED: Final[frozenset[Any]] = _TEXTS | {list, tuple, dict}


class ReadMeter:
    """Counts the elements that macro bodies read in one evaluation, up to the limit.

    Generated code routes every call through it whose cost grows with its operands, except
    orderings, equality and prefixes of strings, which run at the speed of memory.
    """

    __slots__ = ("_remaining",)

    def __init__(self) -> None:
        self._remaining = COST_LIMITS.max_read_elements

    def charge(self, elements: int) -> None:
        """Count elements before they are read."""
        self._remaining -= elements
        if self._remaining < 0:
            message = f"macros read more than {COST_LIMITS.max_read_elements} elements"
            raise CelLimitError("limit-read", message)

    def call(self, function: Callable[..., Any], *operands: Any) -> Any:
        """Call a function that reads its operands once and builds its result."""
        for operand in operands:
            if operand.__class__ in _SIZED:
                self._charge_size(operand)
        result = function(*operands)
        if result.__class__ in _SIZED:
            self._charge_size(result)
        return result

    def equals(self, left: Any, right: Any) -> bool:
        """`left == right`."""
        return operators.equals(left, right, self.charge)

    def is_in(self, element: Any, container: Any) -> bool:
        """`element in container`. A list counts in full even if the search stops early."""
        if container.__class__ is list or container.__class__ is tuple:
            self.charge(len(container))
        return operators.is_in(element, container, self.charge)

    def _charge_size(self, value: Any) -> None:
        length = len(value)
        if value.__class__ not in _TEXTS:
            self.charge(length)
        elif length >= COST_LIMITS.characters_per_element:
            self.charge(length // COST_LIMITS.characters_per_element)
