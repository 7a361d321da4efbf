"""Marks of a policy: facts about past calls."""

# No `annotations` from `__future__`: see `policy`.

from typing import Annotated, Literal

import msgspec

from policyguard.model.entry import Entry, SelectiveEntry


class MarkEvent(SelectiveEntry, frozen=True, kw_only=True):
    """The calls that set or clear a mark; with `key` (CEL) they clear only these keys."""

    unless: str | None = None
    key: str | None = None


class Mark(Entry, frozen=True, kw_only=True):
    """A fact about past calls: a bool, or with `key` (CEL) a set of at most `keep` strings.

    A mark that `host` sets is set by no call.
    """

    id: str
    set: MarkEvent | tuple[MarkEvent, ...] | Literal["host"]
    clear: MarkEvent | tuple[MarkEvent, ...] = ()
    per: Literal["turn", "session", "agent", "project"]
    within: int | None = None
    key: str | None = None
    keep: Annotated[int, msgspec.Meta(ge=1)]
    on_error: Literal["unset", "set"]

    @property
    def is_keyed(self) -> bool:
        """Whether it is a set of keys; one that only the host sets has no `key` to tell by."""
        return self.key is not None
