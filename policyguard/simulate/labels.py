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
        self._by_session: dict[str, list[Label]] = {}
        self._by_file: list[Label] = []
        self._matched: set[int] = set()
        self._all = labels
        for label in labels:
            if label.session is not None:
                self._by_session.setdefault(label.session, []).append(label)
            else:
                self._by_file.append(label)

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

    def find(self, session: str, file: str, *, alone: bool) -> bool | None:
        """The outcome of a session; `alone`: its file holds no other."""
        for label in self._by_session.get(session, ()):
            if label.file is None or same_file(label.file, file):
                self._matched.add(id(label))
                return label.success
        if alone:
            for label in self._by_file:
                if label.file is not None and same_file(label.file, file):
                    self._matched.add(id(label))
                    return label.success
        return None

    @property
    def matched(self) -> int:
        """How many labels have met their session."""
        return len(self._matched)

    @property
    def unmatched(self) -> int:
        """How many have not."""
        return len(self._all) - len(self._matched)


def same_file(one: str, other: str) -> bool:
    """Whether one of two paths is a suffix of the other, folder by folder."""
    left, right = Path(one).parts, Path(other).parts
    shared = min(len(left), len(right))
    return left[-shared:] == right[-shared:] if shared else False
