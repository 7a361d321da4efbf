"""Marks as a host sets and clears them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from policyguard.evaluator.marks.compiled_mark import CompiledMark
from policyguard.guard import validate
from policyguard.guard.sessions.lifetime import SessionLifetime
from policyguard.model.diagnostic import did_you_mean
from policyguard.model.event import MarkChange, Marked


class MarkableSession(SessionLifetime):
    """The part of a session that sets and clears marks."""

    __slots__ = ()

    def mark(self, id: str, key: str | None = None) -> None:  # noqa: A002 - the mark's own word
        """Set a mark of the policy, or one `key` of it. A sub-agent marks its whole run.

        `KeyError` for an unknown mark, `ValueError` for a key that is missing or not needed,
        `ClosedError` if the session is closed; `JournalError`, and `StoreError` for a mark of an
        agent or a project that could not be stored, though it counts here.
        """
        change = find_mark(self.guard._evaluator.marks, id, key)
        self._change_marks(Marked(self.id, marks=(change,), **self._times()))

    def unmark(self, id: str, key: str | None = None) -> None:  # noqa: A002 - as above
        """Clear a mark of the policy; with `key` only this key, else all. Raises as `mark` does."""
        change = find_mark(self.guard._evaluator.marks, id, key, clears=True)
        self._change_marks(Marked(self.id, cleared=(change,), **self._times()))

    def _change_marks(self, event: Marked) -> None:
        emit = self.guard._events.emit_run_marks
        change = event.at, event.marks, event.cleared
        with self.guard._lock:
            self._pipeline.fold(event, partial(emit, self._state, *change))
            if self.guard._stored_marks is not None:
                self.guard._stored_marks.save()


def find_mark(
    marks: Mapping[str, CompiledMark], name: str, key: str | None, *, clears: bool = False
) -> MarkChange:
    """Return the change of a mark that a host names; with `clears`, all keys may be meant.

    `KeyError` for an unknown mark, `ValueError` for a key that is missing or too much.
    """
    mark = marks.get(validate.text("id", name))
    if mark is None:
        known = ", ".join(marks) or "none"
        hint = did_you_mean(name, marks) or f"it has: {known}"
        raise KeyError(f"no mark `{name}` in this policy; {hint}")
    if key is None:
        if mark.is_keyed and not clears:
            raise ValueError(f"mark `{name}` has keys; pass `key`")
        return MarkChange(name)
    if not mark.is_keyed:
        raise ValueError(f"mark `{name}` has no keys; leave out `key`")
    return MarkChange(name, mark.digest(validate.text("key", key)))
