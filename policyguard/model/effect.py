"""Effects on a call, from weakest to strongest."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal


class Effect(StrEnum):
    """`allow < advise < ask < block < halt`; the strongest effect of a call wins.

    *advise* lets the call run and attaches text to its result, *ask* waits for an approval,
    *block* refuses the call, *halt* refuses it and all that follow until the next turn or a grant.
    """

    ALLOW = "allow"
    ADVISE = "advise"
    ASK = "ask"
    BLOCK = "block"
    HALT = "halt"

    @property
    def strength(self) -> int:
        """The rank, from 0 (allow) to 4 (halt)."""
        return _STRENGTH[self]

    # StrEnum would compare by the alphabet, where "advise" comes before "allow".
    def __lt__(self, other: str) -> bool:
        return self.strength < Effect(other).strength

    def __le__(self, other: str) -> bool:
        return self.strength <= Effect(other).strength

    def __gt__(self, other: str) -> bool:
        return self.strength > Effect(other).strength

    def __ge__(self, other: str) -> bool:
        return self.strength >= Effect(other).strength


_STRENGTH: dict[str, int] = {effect: rank for rank, effect in enumerate(Effect)}

ResultEffect = Literal["advise", "redact", "truncate", "withhold", "halt"]
"""Effects on a result. All that fire apply, so they have no order."""
