"""Apply the fixes of findings to the named files."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from policyguard.engines.source import decode_source
from policyguard.lint.linter import LintResult, lint_paths
from policyguard.model.diagnostic import Diagnostic, Edit

_MAX_ROUNDS = 10
"""Rounds of linting and fixing; a fix may enable another one."""


class FixResult(NamedTuple):
    """The number of fixed findings, the changed files, and the findings that remain."""

    fixed: int
    files: tuple[Path, ...]
    result: LintResult


def fix(
    paths: Sequence[Path], *, select: Iterable[str] = (), ignore: Iterable[str] = ()
) -> FixResult:
    """Apply all fixes, and lint again. Take and raise what `lint_paths` does.

    Of two overlapping fixes, the second waits for the next round. If fixes lead to a new error, the
    round's files are restored. Raise `OSError` if a file cannot be written.
    """
    select, ignore = tuple(select), tuple(ignore)
    result = lint_paths(paths, select=select, ignore=ignore)
    fixed = 0
    changed_files: dict[Path, None] = {}
    for _ in range(_MAX_ROUNDS):
        files = {os.path.normpath(path): _EditableFile(path) for path in result.files}
        fixable = [found for found in result.diagnostics if _collect_edits(found, files)]
        if not fixable:
            break
        changed = [file for file in files.values() if file.edits]
        for file in changed:
            file.write()
        after = lint_paths(paths, select=select, ignore=ignore)
        if _count_errors(after) > _count_errors(result):
            for file in changed:
                file.restore()
            break
        fixed += len(fixable)
        changed_files |= dict.fromkeys(file.path for file in changed)
        result = after
    return FixResult(fixed, tuple(changed_files), result)


def apply_edit(edit: Edit) -> Callable[[], None]:
    """Make one edit in its file, which keeps all else; return what restores the file.

    `OSError` if it cannot be written, `ValueError` if its line endings could not be preserved.
    """
    file = _EditableFile(Path(edit.span.file))
    if not file.can_edit:
        raise ValueError(f"{file.path}: mixed line endings cannot be preserved: edit it yourself")
    file.edits.append((*file.offsets(edit), edit.text))
    file.write()
    return file.restore


class _EditableFile:
    """A file, and the edits to make in it: start and end offsets, and the new text."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.edits: list[tuple[int, int, str]] = []
        self._before = path.read_bytes() if path.is_file() else b""
        self._source, problems = decode_source(self._before, str(path))
        crlf = self._before.count(b"\r\n")
        counts = {self._before.count(b"\r"), self._before.count(b"\n")}
        # Mixed line endings could not be preserved.
        self.can_edit = not problems and (counts == {crlf} or b"\r" not in self._before)
        self._newline = "\r\n" if crlf else "\n"

    def offsets(self, edit: Edit) -> tuple[int, int]:
        """Return the start and end offset of an edit."""
        span = edit.span
        return (
            self._source.offset(span.line, span.column),
            self._source.offset(span.end_line, span.end_column),
        )

    def write(self) -> None:
        """Apply the edits."""
        text = self._source.text
        for start, end, new in sorted(self.edits, reverse=True):
            text = text[:start] + new + text[end:]
        bom = b"\xef\xbb\xbf" if self._before.startswith(b"\xef\xbb\xbf") else b""
        _replace_file(self.path, bom + text.replace("\n", self._newline).encode())

    def restore(self) -> None:
        """Restore the original file."""
        _replace_file(self.path, self._before)


def _collect_edits(found: Diagnostic, files: dict[str, _EditableFile]) -> bool:
    """Add a finding's edits to their files, unless one is elsewhere or overlaps another edit."""
    edits: list[tuple[_EditableFile, int, int, str]] = []
    for edit in found.edits:
        file = files.get(edit.span.file)
        if file is None or not file.can_edit:
            return False
        start, end = file.offsets(edit)
        if any(start == first or (start < last and first < end) for first, last, _ in file.edits):
            return False
        edits.append((file, start, end, edit.text))
    for file, start, end, new in edits:
        file.edits.append((start, end, new))
    return bool(edits)


def _count_errors(result: LintResult) -> int:
    return sum(found.severity == "error" for found in result.diagnostics)


def _replace_file(file: Path, data: bytes) -> None:
    """Replace a file atomically. A symbolic link keeps its target path."""
    target = file.resolve()
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from None
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        shutil.copymode(target, temporary)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
