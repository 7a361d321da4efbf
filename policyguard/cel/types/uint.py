"""CEL's unsigned integers, which Python lacks."""

from __future__ import annotations

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1
UINT_MAX = 2**64 - 1


class Uint(int):
    """An unsigned 64-bit integer, such as the literal `3u`.

    It is an `int` in Python, so that numbers of all types compare and hash by value, but a separate
    type to the operators, which never mix it with `int`. Creators check the range.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{int(self)}u"
