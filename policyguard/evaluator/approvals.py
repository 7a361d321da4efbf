"""Who has said yes to a call that was asked about: bound to its fingerprint, used once."""

from __future__ import annotations

import msgspec

from policyguard.model.event import Charge


class Terms(msgspec.Struct, frozen=True):
    """Whose yes it takes (labels; none: anyone's), and of how many people.

    It is waited for `within` (ns). `otherwise_allow`: where nobody can be asked, the call runs.
    """

    labels: frozenset[str]
    people: int
    within: int
    otherwise_allow: bool


class Yes(msgspec.Struct, frozen=True):
    """One approval: by whom, with which of the host's labels, when (ns)."""

    by: str
    labels: frozenset[str]
    at: int | None


class Asked(msgspec.Struct, frozen=True):
    """When somebody was asked about a call (ns), and which budgets a yes raises."""

    at: int | None
    asks: tuple[Charge, ...] = ()


class Approvals:
    """The calls of a session that were asked about, and what was said. At most `most` of each."""

    __slots__ = ("asked", "given", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.asked: dict[str, Asked] = {}
        self.given: dict[str, list[Yes]] = {}

    def ask(self, fingerprint: str, asked: Asked, within: int | None) -> None:
        """A call was refused because somebody must be asked.

        Where it has been asked before and was not answered `within` this time, it is asked anew.
        """
        if fingerprint in self.asked:
            if within is None or not self.expired(fingerprint, within, asked.at):
                return
            self.use(fingerprint)
        self.asked[fingerprint] = asked
        if len(self.asked) > self.most:
            self.use(next(iter(self.asked)))

    def give(self, fingerprint: str, yes: Yes) -> None:
        """Somebody has said yes. Whoever says it twice is one.

        Where no question is open it counts nowhere: no later one is answered beforehand.
        """
        if fingerprint not in self.asked:
            return
        given = self.given.setdefault(fingerprint, [])
        given[:] = [one for one in given if one.by != yes.by]
        given.append(yes)
        if len(given) > self.most:
            del given[0]

    def waives(self, fingerprint: str, terms: Terms | None, at: int | None) -> bool:
        """Whether enough has been said, soon enough, for what has these terms against the call.

        What has none is waived by any one approval.
        """
        given = self.given.get(fingerprint)
        if not given:
            return False
        if terms is None:
            return True
        asked = self.asked.get(fingerprint)
        people = {
            one.by
            for one in given
            if (not terms.labels or one.labels & terms.labels)
            and (asked is None or _soon(asked.at, one.at, terms.within))
            and _soon(one.at, at, terms.within)
        }
        return len(people) >= terms.people

    def expired(self, fingerprint: str, within: int, at: int | None) -> bool:
        """Whether the call was asked about, and nobody has answered for `within`."""
        asked = self.asked.get(fingerprint)
        return asked is not None and not _soon(asked.at, at, within)

    def extending(self, fingerprint: str) -> tuple[Charge, ...]:
        """The budgets that a yes to this call raises; only the first one does."""
        asked = self.asked.get(fingerprint)
        return asked.asks if asked is not None and fingerprint not in self.given else ()

    def use(self, fingerprint: str) -> None:
        """The call has been admitted: whoever wants it again must ask again."""
        self.asked.pop(fingerprint, None)
        self.given.pop(fingerprint, None)


def _soon(first: int | None, then: int | None, within: int) -> bool:
    return first is None or then is None or then - first <= within
