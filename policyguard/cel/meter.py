"""What operators and functions inside macros read, so that no loop multiplies hostile data.

Once, each reads no more than its data is long, and that is bounded where the data comes from. In a
macro's body it may read the same data at every element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from policyguard.cel import operators
from policyguard.cel.bounds import BOUNDS
from policyguard.cel.errors import CelLimitError

__all__ = ["Meter"]

_TEXTS: Final[frozenset[Any]] = frozenset({str, bytes})
_SIZED: Final[frozenset[Any]] = _TEXTS | {list, tuple, dict}


class Meter:
    """Counts the elements that the macros' bodies of one evaluation read, up to `BOUNDS.read`.

    Generated code calls through it what takes the longer the more it is given, but for orderings,
    equality and prefixes of texts: these are compared as fast as memory is read.
    """

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = BOUNDS.read

    def draw(self, elements: int) -> None:
        """Count elements, before they are read."""
        self._left -= elements
        if self._left < 0:
            raise CelLimitError(
                "limit-read", f"the bodies of macros read more than {BOUNDS.read} elements"
            )

    def run(self, function: Callable[..., Any], *operands: Any) -> Any:
        """Call a function that reads its operands once, and makes its result."""
        for operand in operands:
            if operand.__class__ in _SIZED:
                self._weigh(operand)
        result = function(*operands)
        if result.__class__ in _SIZED:
            self._weigh(result)
        return result

    def equals(self, left: Any, right: Any) -> bool:
        """`left == right`."""
        return operators.equals(left, right, self.draw)

    def is_in(self, element: Any, container: Any) -> bool:
        """`element in container`. A list counts in full, even where the search stops early."""
        if container.__class__ is list or container.__class__ is tuple:
            self.draw(len(container))
        return operators.is_in(element, container, self.draw)

    def _weigh(self, value: Any) -> None:
        length = len(value)
        if value.__class__ not in _TEXTS:
            self.draw(length)
        elif length >= BOUNDS.read_text:
            self.draw(length // BOUNDS.read_text)
