"""Which recorded runs succeeded, told from outside the recordings."""

from __future__ import annotations

from pathlib import Path

import msgspec


class LabelError(Exception):
    """A labels file that cannot be used; the message says where and why."""


class Label(msgspec.Struct, frozen=True):
    """One run's outcome. It names its session, its file, or both."""

    success: bool | None
    session: str | None = None
    file: str | None = None


class Labels:
    """The labels of a JSONL file: `{"session", "success", "file"?}` a line, other keys ignored.

    A label matches where the session id is equal and, if it names a file, one of the two paths is
    a suffix of the other; a file alone matches only where it holds one session. `success: null`
    says that the outcome is not known.
    """

    def __init__(self, labels: list[Label]) -> None:
        self._by_session: dict[str, list[int]] = {}
        self._by_file: list[int] = []
        self._all = labels
        for place, label in enumerate(labels):
            if label.session is not None:
                self._by_session.setdefault(label.session, []).append(place)
            else:
                self._by_file.append(place)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def of_files(self) -> bool:
        """Whether a label is for the only session of a file."""
        return bool(self._by_file)

    @classmethod
    def read(cls, path: Path) -> Labels:
        """Read a labels file. Raises `LabelError`."""
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise LabelError(f"{path}: cannot be read: {error.strerror or error}") from None
        labels = []
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                label = msgspec.json.decode(line, type=Label)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
                raise LabelError(
                    f"{path}:{number}: not a label: {error}; "
                    'write one object a line, as {"session": "s1", "success": true}'
                ) from None
            if label.session is None and label.file is None:
                raise LabelError(f"{path}:{number}: a label needs a `session` or a `file`")
            labels.append(label)
        return cls(labels)

    def find(self, session: str, file: str, *, alone: bool) -> tuple[int, bool | None] | None:
        """The label of a session (its place among all) and the outcome that it tells.

        `alone`: the session's file holds no other.
        """
        for place in self._by_session.get(session, ()):
            named = self._all[place].file
            if named is None or same_file(named, file):
                return place, self._all[place].success
        if alone:
            for place in self._by_file:
                if same_file(self._all[place].file or "", file):
                    return place, self._all[place].success
        return None


def same_file(one: str, other: str) -> bool:
    """Whether one of two paths is a suffix of the other, folder by folder."""
    left, right = Path(one).parts, Path(other).parts
    shared = min(len(left), len(right))
    return left[-shared:] == right[-shared:] if shared else False
