"""CEL's unsigned integers, which plain Python does not have."""

from __future__ import annotations

__all__ = ["INT_MAX", "INT_MIN", "UINT_MAX", "Uint"]

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1
UINT_MAX = 2**64 - 1


class Uint(int):
    """An unsigned 64-bit integer, such as the literal `3u`.

    An `int` to Python, so that numbers of all types compare and hash by value; a type of its own
    to the operators, which never mix it with `int`. The range is checked where it is made.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{int(self)}u"
