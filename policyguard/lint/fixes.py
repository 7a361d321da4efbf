"""Make the changes that findings propose, in the files that were named."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from policyguard.engines.source import decode_source
from policyguard.lint.linter import LintResult, lint_paths
from policyguard.model.diagnostic import Diagnostic, Edit

_MAX_ROUNDS = 10
"""How often the files are linted anew: a change may make room for another one."""


class FixResult(NamedTuple):
    """How many findings were mended, in which files, and what is found afterwards."""

    fixed: int
    files: tuple[Path, ...]
    result: LintResult


def fix(
    paths: Sequence[Path], *, select: Iterable[str] = (), ignore: Iterable[str] = ()
) -> FixResult:
    """Make every change that is certain, and lint again. Takes and raises what `lint_paths` does.

    Changes never overlap: of two that would, one is made, and the other if it is still proposed
    afterwards. A file in which a change has made an error is put back as it was. Raises `OSError`
    where a file cannot be written.
    """
    select, ignore = tuple(select), tuple(ignore)
    result = lint_paths(paths, select=select, ignore=ignore)
    mended = 0
    touched: dict[Path, None] = {}
    for _ in range(_MAX_ROUNDS):
        texts = {os.path.normpath(file): _EditableFile(file) for file in result.files}
        chosen = [found for found in result.diagnostics if _collect_edits(found, texts)]
        if not chosen:
            break
        changed = [text for text in texts.values() if text.edits]
        for text in changed:
            text.write()
        after = lint_paths(paths, select=select, ignore=ignore)
        if _count_errors(after) > _count_errors(result):
            for text in changed:
                text.restore()
            break
        mended += len(chosen)
        touched |= dict.fromkeys(text.file for text in changed)
        result = after
    return FixResult(mended, tuple(touched), result)


class _EditableFile:
    """A file, and the changes to be made in it, as offsets and what takes their place."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.edits: list[tuple[int, int, str]] = []
        self._before = file.read_bytes() if file.is_file() else b""
        self._source, wrong = decode_source(self._before, str(file))
        pairs = self._before.count(b"\r\n")
        ends = {self._before.count(b"\r"), self._before.count(b"\n")}
        # Where line breaks of several kinds are mixed, they could not be put back as they were.
        self.can_change = not wrong and (ends == {pairs} or b"\r" not in self._before)
        self._break = "\r\n" if pairs else "\n"

    def offsets(self, edit: Edit) -> tuple[int, int]:
        """Where an edit begins and ends."""
        span = edit.span
        return (
            self._source.offset(span.line, span.column),
            self._source.offset(span.end_line, span.end_column),
        )

    def write(self) -> None:
        """Make the changes."""
        text = self._source.text
        for start, end, new in sorted(self.edits, reverse=True):
            text = text[:start] + new + text[end:]
        mark = b"\xef\xbb\xbf" if self._before.startswith(b"\xef\xbb\xbf") else b""
        _replace_file(self.file, mark + text.replace("\n", self._break).encode())

    def restore(self) -> None:
        """Put the file back as it was."""
        _replace_file(self.file, self._before)


def _collect_edits(found: Diagnostic, texts: dict[str, _EditableFile]) -> bool:
    """Note a finding's edits, all or none: they must lie in files named, and apart from others."""
    placed: list[tuple[_EditableFile, int, int, str]] = []
    for edit in found.edits:
        text = texts.get(edit.span.file)
        if text is None or not text.can_change:
            return False
        start, end = text.offsets(edit)
        others = [(first, last) for first, last, _ in text.edits]
        if any(start == first or (start < last and first < end) for first, last in others):
            return False
        placed.append((text, start, end, edit.text))
    for text, start, end, new in placed:
        text.edits.append((start, end, new))
    return bool(placed)


def _count_errors(result: LintResult) -> int:
    return sum(found.severity == "error" for found in result.diagnostics)


def _replace_file(file: Path, data: bytes) -> None:
    """Write a file as a whole or not at all; a link goes on to point at what it pointed at."""
    target = file.resolve()
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    new = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        shutil.copymode(target, new)
        new.replace(target)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
