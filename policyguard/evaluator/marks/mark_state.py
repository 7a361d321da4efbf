"""One mark in one scope: what is set, since when, and what was cleared.

State keeps the fingerprints of keys, never the keys: an event with a mark's change rebuilds the
mark without any argument.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from policyguard.evaluator.marks.compiled_mark import ANY_KEY, CompiledMark


class MarkState(msgspec.Struct, eq=False):
    """One mark in one scope.

    `keys` are those that are set, the least recently set first, each with its time (ns); the key of
    a bool is empty. Clearings are numbered: `cleared` is the last one of all keys, `cleared_keys`
    hold the last one of single keys since.
    """

    keys: dict[str, int | None] = msgspec.field(default_factory=dict)
    cleared: int = 0
    cleared_keys: dict[str, int] = msgspec.field(default_factory=dict)

    def update(
        self,
        mark: CompiledMark,
        number: int,
        *,
        cleared: Sequence[str],
        keys: Sequence[str],
        at: int | None,
        since: int | None,
    ) -> None:
        """Clear keys (an empty one: all) as clearing `number`, then set others at `at` (ns).

        Those are left out that were cleared before, but after clearing `since` (None: none is).
        """
        if since is not None:
            keys = [key for key in keys if not self.is_overtaken(key, since)]
        for key in cleared:
            self._clear(mark, key, number)
        for key in keys:
            self._set(mark, key, at)

    def is_overtaken(self, key: str, since: int) -> bool:
        """Whether a key was cleared after clearing `since`."""
        return max(self.cleared, self.cleared_keys.get(key, 0)) > since

    def copy(self) -> MarkState:
        """Return a state that is changed apart from this one."""
        return MarkState(dict(self.keys), self.cleared, dict(self.cleared_keys))

    def is_set(self, mark: CompiledMark, at: int | None) -> bool:
        """Whether a key is set at `at` (ns)."""
        return any(is_alive(set_at, mark.within, at) for set_at in reversed(self.keys.values()))

    def absorb(self, mark: CompiledMark, fallen: MarkState) -> None:
        """Note what was known of a scope whose own state is dropped.

        This state then stands for all scopes without one: perhaps each was cleared as late, and
        where doubt sets the mark, each is set as long.
        """
        self.cleared = max(self.cleared, fallen.cleared, *fallen.cleared_keys.values())
        if mark.sets_on_error and fallen.keys:
            times = fallen.keys.values()
            latest = max(at for at in times if at is not None) if None not in times else None
            _set_key(self.keys, ANY_KEY if mark.is_keyed else "", latest, keep_later=True)

    def _set(self, mark: CompiledMark, key: str, at: int | None) -> None:
        """Set a key. Of too many the least recently set falls out.

        Where doubt sets the mark, every key is set instead, for as long as the one that fell out
        would have been.
        """
        keys = self.keys
        _set_key(keys, key, at, keep_later=mark.sets_on_error)
        if len(keys) - (ANY_KEY in keys) > mark.keep:
            set_at = keys.pop(next(key for key in keys if key != ANY_KEY))
            if mark.sets_on_error:  # nothing tells any more which key has fallen out
                _set_key(keys, ANY_KEY, set_at, keep_later=True)

    def _clear(self, mark: CompiledMark, key: str, number: int) -> None:
        """Clear a key, or all. A wildcard is cleared only with all keys."""
        if not key:
            self.keys.clear()
            self.cleared_keys.clear()
            self.cleared = number
            return
        self.keys.pop(key, None)
        cleared = self.cleared_keys
        cleared.pop(key, None)
        cleared[key] = number
        if len(cleared) > mark.keep:
            self.cleared = max(self.cleared, cleared.pop(next(iter(cleared))))


class MarkKeys(msgspec.Struct, frozen=True, eq=False):
    """The keys of a mark at a time (ns), to be asked one by one."""

    mark: CompiledMark
    state: MarkState | None
    at: int | None

    def has(self, key: str) -> bool:
        """Whether a key is set."""
        keys = self.state.keys if self.state is not None else None
        if not keys:
            return False
        return any(
            one in keys and is_alive(keys[one], self.mark.within, self.at)
            for one in (self.mark.digest(key), ANY_KEY)
        )

    def count(self) -> int:
        """Return how many keys are set."""
        if self.state is None:
            return 0
        return sum(is_alive(one, self.mark.within, self.at) for one in self.state.keys.values())


def _set_key(keys: dict[str, int | None], key: str, at: int | None, *, keep_later: bool) -> None:
    """Set a key at `at` (ns), as the latest; with `keep_later` it never expires earlier for it."""
    known = keys.pop(key, at)
    if keep_later:
        at = None if known is None or at is None else max(known, at)
    keys[key] = at


def is_alive(set_at: int | None, within: int | None, at: int | None) -> bool:
    """Whether what was set at `set_at` has not expired at `at`; without times nothing expires."""
    return within is None or set_at is None or at is None or set_at > at - within
