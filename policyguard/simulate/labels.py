"""Which recorded runs succeeded, told from outside the recordings."""

from __future__ import annotations

from pathlib import Path

import msgspec

from policyguard.model.errors import PolicyguardError


class LabelError(PolicyguardError):
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
    says that the outcome is not known. Labels that may be about one session say the same of it.
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
    def has_file_labels(self) -> bool:
        """Whether a label is for the only session of a file."""
        return bool(self._by_file)

    @classmethod
    def read(cls, path: Path) -> Labels:
        """Read a labels file. Raises `LabelError`."""
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise LabelError(f"{path}: cannot be read: {error.strerror or error}") from None
        labels: dict[Label, int] = {}  # what is said twice is taken once, from its first line
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
            labels.setdefault(label, number)
        if (found := _find_conflict(labels)) is not None:
            number, other = found
            raise LabelError(
                f"{path}:{number}: says otherwise than {path}:{other} of the same session: "
                "keep one of the two, or name in both the `file` that it is in"
            )
        return cls(list(labels))

    def find(self, session: str, file: str, *, only_session: bool) -> tuple[list[int], bool | None]:
        """The labels of a session (their places among all) and the outcome that they tell.

        `alone`: the session's file holds no other. One that names the session goes first.
        """
        found = [
            place
            for place in self._by_session.get(session, ())
            if (named := self._all[place].file) is None or is_same_file(named, file)
        ]
        if only_session:
            found += [
                place for place in self._by_file if is_same_file(self._all[place].file or "", file)
            ]
        return found, self._all[found[0]].success if found else None


def _find_conflict(labels: dict[Label, int]) -> tuple[int, int] | None:
    """The lines of two labels that may be about one session, and tell different outcomes of it.

    Read from the file's name upwards, the path of one of the two begins with that of the other.
    In order, a path stands right behind those that it begins with. A label without a file is
    about every file: each begins with its path.
    """
    by_session: dict[str | None, list[tuple[tuple[str, ...], int, bool | None]]] = {}
    for label, line in labels.items():
        path = Path(label.file or "").parts[::-1]
        if path or label.session is not None:
            by_session.setdefault(label.session, []).append((path, line, label.success))
    for told in by_session.values():
        begun: list[tuple[tuple[str, ...], int, bool | None]] = []
        for path, line, success in sorted(told, key=lambda one: one[:2]):
            while begun and begun[-1][0] != path[: len(begun[-1][0])]:
                begun.pop()
            if begun and begun[-1][2] is not success:
                other = begun[-1][1]
                return max(line, other), min(line, other)
            begun.append((path, line, success))
    return None


def is_same_file(one: str, other: str) -> bool:
    """Whether one of two paths is a suffix of the other, folder by folder."""
    left, right = Path(one).parts, Path(other).parts
    shared = min(len(left), len(right))
    return left[-shared:] == right[-shared:] if shared else False
