"""Labels: the outcomes of recorded runs, from outside the recordings."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from policyguard.engines.input_file import open_input
from policyguard.simulate.label_tables import LabelError, find_reader
from policyguard.store.json_lines import number_lines, read_lines


class Label(msgspec.Struct, frozen=True):
    """The outcome of one run, which is named by session, file or both."""

    success: bool | None
    session: str | None = None
    file: str | None = None


class Labels:
    """The labels of a file: JSONL with `{"session", "success", "file"?}` a line, or a table.

    A label matches an equal session id and, if it names a file, a path of which it is a suffix or
    the reverse. A label with only a file matches if the file holds one session. `success: null`
    means that the outcome is unknown. Labels that may match the same session agree.
    """

    def __init__(self, labels: list[Label]) -> None:
        self._by_session: dict[str, list[int]] = {}
        self._by_file: dict[str, list[int]] = {}  # by the name at the end of the path
        self._all = labels
        for index, label in enumerate(labels):
            if label.session is not None:
                self._by_session.setdefault(label.session, []).append(index)
            else:
                self._by_file.setdefault(_name(label.file), []).append(index)

    def __len__(self) -> int:
        return len(self._all)

    @cached_property
    def digest(self) -> str:
        """A text that differs for other labels."""
        return hashlib.sha256(msgspec.json.encode(self._all)).hexdigest()

    @property
    def has_file_labels(self) -> bool:
        """Whether a label names only a file."""
        return bool(self._by_file)

    def may_name(self, file: str) -> bool:
        """Whether a label may name a file alone."""
        return _name(file) in self._by_file

    @classmethod
    def read(cls, path: Path) -> Labels:
        """Read a labels file. Raises `LabelError`."""
        labels: dict[Label, int] = {}  # a repeated label counts once, with its first line
        read_rows = find_reader(path)
        try:
            if read_rows is not None:
                for number, row in read_rows(path):
                    labels.setdefault(_convert(row, f"{path}:{number}"), number)
            else:
                with open_input(path) as file:
                    for number, line in number_lines(read_lines(file)):
                        labels.setdefault(_parse(line, f"{path}:{number}"), number)
        except OSError as error:
            raise LabelError(f"{path}: cannot be read: {error.strerror or error}") from None
        if (found := _find_conflict(labels)) is not None:
            number, other = found
            raise LabelError(
                f"{path}:{number}: conflicts with {path}:{other} about the same session; "
                "remove one of them, or add the `file` to both"
            )
        return cls(list(labels))

    def find(self, session: str, file: str, *, only_session: bool) -> tuple[list[int], bool | None]:
        """Return the indices of the labels that match a session, and its outcome.

        `only_session`: the session's file holds no other. Labels that name the session go first.
        """
        found = [
            index
            for index in self._by_session.get(session, ())
            if (named := self._all[index].file) is None or is_same_file(named, file)
        ]
        if only_session:
            found += [
                index
                for index in self._by_file.get(_name(file), ())
                if is_same_file(self._all[index].file or "", file)
            ]
        return found, self._all[found[0]].success if found else None


def _name(file: str | None) -> str:
    return Path(file or "").name


def _parse(line: bytes, place: str) -> Label:
    try:
        label = msgspec.json.decode(line, type=Label)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise LabelError(
            f"{place}: not a label: {error}; "
            'write one object a line, as {"session": "s1", "success": true}'
        ) from None
    return _require_name(label, place)


def _convert(row: Mapping[str, Any], place: str) -> Label:
    """Return a row of a table as a label: `true`, `false`, 1, 0, or nothing where unknown."""
    values = {name: row.get(name) for name in ("session", "file")}
    texts = {name: None if value is None else str(value) for name, value in values.items()}
    try:
        label = msgspec.convert({**texts, "success": row.get("success")}, Label, strict=False)
    except msgspec.ValidationError:
        shown = str(row.get("success"))
        raise LabelError(f"{place}: `success` is `{shown:.40}`, not true or false") from None
    return _require_name(label, place)


def _require_name(label: Label, place: str) -> Label:
    if label.session is None and label.file is None:
        raise LabelError(f"{place}: a label needs a `session` or a `file`")
    return label


def _find_conflict(labels: dict[Label, int]) -> tuple[int, int] | None:
    """Return the lines of two labels that may match the same session but disagree.

    Reversed paths (file name first) of such labels are prefixes of each other. Sorting puts a path
    right after its prefixes. A label without a file has the empty path, a prefix of every other.
    """
    by_session: dict[str | None, list[tuple[tuple[str, ...], int, bool | None]]] = {}
    for label, line in labels.items():
        path = Path(label.file or "").parts[::-1]
        if path or label.session is not None:
            by_session.setdefault(label.session, []).append((path, line, label.success))
    for same_session in by_session.values():
        prefixes: list[tuple[tuple[str, ...], int, bool | None]] = []
        for path, line, success in sorted(same_session, key=lambda label: label[:2]):
            while prefixes and prefixes[-1][0] != path[: len(prefixes[-1][0])]:
                prefixes.pop()
            if prefixes and prefixes[-1][2] is not success:
                other = prefixes[-1][1]
                return max(line, other), min(line, other)
            prefixes.append((path, line, success))
    return None


def is_same_file(one: str, other: str) -> bool:
    """Return whether one of two paths is a suffix of the other, folder by folder."""
    left, right = Path(one).parts, Path(other).parts
    shared = min(len(left), len(right))
    return left[-shared:] == right[-shared:] if shared else False
