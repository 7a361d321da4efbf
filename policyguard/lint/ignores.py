"""Comments that keep a finding from being reported: `# policyguard: ignore[code] reason`.

Such a comment is about its own line or, alone in a line, about the next one; `ignore-file[code]`
is about the whole file. It names its codes and gives a reason, and one that has nothing to ignore
is reported itself: what is silenced stays visible, and does not outlive its cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import structs

from policyguard.engines.source import Source
from policyguard.engines.yaml_comments import Comment, find_comments
from policyguard.engines.yaml_tree import Node
from policyguard.model.diagnostic import Diagnostic, Edit, Span, did_you_mean, quote_text

UNIGNORABLE = frozenset({"lint/ignore-syntax", "lint/unknown-code", "lint/unused-ignore"})
"""Codes of what is wrong with such comments. These cannot be ignored."""

_OURS = re.compile(r"policyguard:\s*ignore\b", re.IGNORECASE)
_FORM = re.compile(r"#\s*policyguard:\s*ignore(?P<file>-file)?\[(?P<codes>[^\]]*)\](?P<reason>.*)")
_CODE = re.compile(r"[^\s,]+")
_WRITE = "write `# policyguard: ignore[code] reason`"


@dataclass(frozen=True, eq=False)
class IgnoreDirective:
    """One code in one comment. `line` is the line that it is about, None for the whole file.

    `place` is where the code stands, `others` are the further codes of the comment and `codes`
    the offsets of them all.
    """

    code: str
    span: Span
    line: int | None
    reason: str
    source: Source
    comment: Comment
    codes_range: tuple[int, int]
    other_codes: tuple[str, ...]

    def covers(self, found: Diagnostic) -> bool:
        """Whether a finding is one that the comment is about."""
        if found.code != self.code or found.span.file != self.source.file:
            return False
        if is_load_error(found):
            return False
        return self.line is None or found.span.line <= self.line <= found.span.end_line

    def removal_edit(self) -> Edit:
        """Takes the code out of its comment, and with the last code the comment out of the file."""
        if self.other_codes:
            return Edit(self.source.span(*self.codes_range), ", ".join(self.other_codes))
        text, start, end = self.source.text, self.comment.start, self.comment.end
        before = text[:start].rstrip(" \t")
        if self.comment.is_whole_line:
            end = min(end + 1, len(text))
        return Edit(self.source.span(len(before), end), "")


def read_directives(root: Node) -> tuple[list[IgnoreDirective], list[Diagnostic]]:
    """The ignore comments of a file, and what is wrong with them."""
    source = root.source
    found = [(one, source.span(one.start, one.end)) for one in find_comments(root)]
    alone = {span.line for comment, span in found if comment.is_whole_line}
    ignores: list[IgnoreDirective] = []
    wrong: list[Diagnostic] = []
    for comment, span in found:
        if not _OURS.match(comment.text):
            continue
        form = _FORM.fullmatch(source.text, comment.start, comment.end)
        codes = list(_CODE.finditer(source.text, *form.span("codes"))) if form else []
        if form is None or not codes:
            message = "this comment is not understood, and ignores nothing"
            wrong.append(source.diagnostic("lint/ignore-syntax", message, span, hint=_WRITE))
            continue
        if not re.search(r"\w", form["reason"]):
            message = "a comment that ignores a finding needs a reason"
            hint = f"write it behind the bracket: `{_shown(comment)} because …`"
            wrong.append(source.diagnostic("lint/ignore-syntax", message, span, hint=hint))
            continue
        line = span.line
        while comment.is_whole_line and line in alone:
            line += 1
        ignores += (
            IgnoreDirective(
                code=code[0],
                span=source.span(*code.span()),
                line=None if form["file"] else line,
                reason=form["reason"].strip(),
                source=source,
                comment=comment,
                codes_range=form.span("codes"),
                other_codes=tuple(other[0] for other in codes if other is not code),
            )
            for code in codes
        )
    return ignores, wrong


def _shown(comment: Comment) -> str:
    return f"# {comment.text}"


class IgnoredFinding(NamedTuple):
    """A finding that is not reported, and the reason that the comment gives."""

    diagnostic: Diagnostic
    reason: str


def is_load_error(found: Diagnostic) -> bool:
    """Whether the policy does not load because of a finding, which is then always reported."""
    return found.severity == "error" and not found.code.startswith("lint/")


def apply_ignores(
    found: Iterable[Diagnostic], ignores: Iterable[IgnoreDirective]
) -> tuple[list[Diagnostic], list[IgnoredFinding], set[IgnoreDirective]]:
    """What is to be reported, what is ignored, and the comments that have ignored something."""
    ignores = list(ignores)
    reported: list[Diagnostic] = []
    ignored: list[IgnoredFinding] = []
    used: set[IgnoreDirective] = set()
    for one in found:
        mine = [ignore for ignore in ignores if ignore.covers(one)]
        used.update(mine)
        if mine:
            ignored.append(IgnoredFinding(one, mine[0].reason))
        else:
            reported.append(one)
    return reported, ignored, used


def find_unused(
    ignores: Iterable[IgnoreDirective],
    used: set[IgnoreDirective],
    known_codes: frozenset[str],
    checked_codes: dict[str, set[str]],
) -> Iterator[Diagnostic]:
    """Report comments with nothing to ignore.

    `known` are all codes, `judged` by file those that were looked for in it.
    """
    for ignore in ignores:
        if ignore.code not in known_codes:
            message = f"no finding has the code {quote_text(ignore.code)}"
            hint = did_you_mean(ignore.code, known_codes)
            yield _report("lint/unknown-code", message, ignore, hint)
        elif ignore.code in UNIGNORABLE or (
            ignore not in used and ignore.code in checked_codes.get(ignore.source.file, ())
        ):
            where = "in this file" if ignore.line is None else "here"
            message = f"{quote_text(ignore.code)} is not found {where}: there is nothing to ignore"
            if ignore.code in UNIGNORABLE:
                message = f"{quote_text(ignore.code)} is about such comments, and cannot be ignored"
            found = _report("lint/unused-ignore", message, ignore, "take it out")
            yield structs.replace(found, edits=(ignore.removal_edit(),))


def _report(code: str, message: str, ignore: IgnoreDirective, hint: str | None) -> Diagnostic:
    return ignore.source.diagnostic(code, message, ignore.span, hint=hint, severity="warning")
