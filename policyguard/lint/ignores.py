"""Ignore comments: `# policyguard: ignore[code] reason`.

A comment covers its own line or, on a line of its own, the next one; `ignore-file[code]` covers the
whole file. A reason is required, and an unused ignore comment is itself reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import structs

from policyguard.engines.source import SourceText
from policyguard.engines.yaml_comments import Comment, find_comments
from policyguard.engines.yaml_tree import Node
from policyguard.lint.catalog import PAGES, canonical_code, is_load_error
from policyguard.model.diagnostic import Diagnostic, Edit, Span, did_you_mean, quote_text

UNIGNORABLE = frozenset({"lint/ignore-syntax", "lint/unknown-code", "lint/unused-ignore"})
"""Codes about ignore comments themselves."""

_LIKELY_DIRECTIVE = re.compile(r"policyguard:\s*ignore\b", re.IGNORECASE)
_FORM = re.compile(r"#\s*policyguard:\s*ignore(?P<file>-file)?\[(?P<codes>[^\]]*)\](?P<reason>.*)")
_CODE = re.compile(r"[^\s,]+")
_HINT = "write `# policyguard: ignore[code] reason`"


@dataclass(frozen=True, eq=False)
class IgnoreDirective:
    """One code of an ignore comment.

    `span` is that of the code. `line` is the covered line, None for the whole file. `codes_range`
    holds the offsets of all the comment's codes, `other_codes` the other codes.
    """

    code: str
    span: Span
    line: int | None
    reason: str
    source: SourceText
    comment: Comment
    codes_range: tuple[int, int]
    other_codes: tuple[str, ...]

    def covers(self, found: Diagnostic) -> bool:
        """Return whether the comment covers a finding."""
        if found.code != self.code or found.span.file != self.source.file or is_load_error(found):
            return False
        return self.line is None or found.span.line <= self.line <= found.span.end_line

    def removal_edit(self) -> Edit:
        """Return the edit that removes the code or, if it is the only one, the whole comment."""
        if self.other_codes:
            return Edit(self.source.span(*self.codes_range), ", ".join(self.other_codes))
        text, start, end = self.source.text, self.comment.start, self.comment.end
        before = text[:start].rstrip(" \t")
        if self.comment.is_whole_line:
            end = min(end + 1, len(text))
        return Edit(self.source.span(len(before), end), "")


def read_directives(root: Node) -> tuple[list[IgnoreDirective], list[Diagnostic]]:
    """Return a file's ignore comments, and the findings about them."""
    source = root.source
    spans = [(one, source.span(one.start, one.end)) for one in find_comments(root)]
    comment_lines = {span.line for comment, span in spans if comment.is_whole_line}
    directives: list[IgnoreDirective] = []
    problems: list[Diagnostic] = []
    for comment, span in spans:
        if not _LIKELY_DIRECTIVE.match(comment.text):
            continue
        form = _FORM.fullmatch(source.text, comment.start, comment.end)
        codes = list(_CODE.finditer(source.text, *form.span("codes"))) if form else []
        if form is None or not codes:
            message = "invalid ignore comment; it ignores nothing"
            problems.append(source.diagnostic("lint/ignore-syntax", message, span, hint=_HINT))
            continue
        if not re.search(r"\w", form["reason"]):
            message = "an ignore comment needs a reason"
            hint = f"add it after the bracket: `# {comment.text} because …`"
            problems.append(source.diagnostic("lint/ignore-syntax", message, span, hint=hint))
            continue
        line = span.line
        while comment.is_whole_line and line in comment_lines:
            line += 1
        directives += (
            IgnoreDirective(
                code=canonical_code(code[0]),
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
    return directives, problems


class IgnoredFinding(NamedTuple):
    """An ignored finding, and the reason given in the comment."""

    diagnostic: Diagnostic
    reason: str


def apply_ignores(
    diagnostics: Iterable[Diagnostic], directives: list[IgnoreDirective]
) -> tuple[list[Diagnostic], list[IgnoredFinding], set[IgnoreDirective]]:
    """Return the findings to report, the ignored ones, and the used ignore comments."""
    reported: list[Diagnostic] = []
    ignored: list[IgnoredFinding] = []
    used: set[IgnoreDirective] = set()
    for diagnostic in diagnostics:
        covering = [directive for directive in directives if directive.covers(diagnostic)]
        used.update(covering)
        if covering:
            ignored.append(IgnoredFinding(diagnostic, covering[0].reason))
        else:
            reported.append(diagnostic)
    return reported, ignored, used


def find_unused(
    directives: Iterable[IgnoreDirective],
    used: set[IgnoreDirective],
    checked_codes: dict[str, set[str]],
) -> Iterator[Diagnostic]:
    """Yield findings about ignore comments with unknown codes, and about unused ones.

    `checked_codes` holds, for each file, the codes that were looked for.
    """
    for directive in directives:
        code = quote_text(directive.code)
        if directive.code not in PAGES:
            hint = did_you_mean(directive.code, PAGES)
            yield _report("lint/unknown-code", f"there is no code {code}", directive, hint)
        elif directive.code in UNIGNORABLE or (
            directive not in used and directive.code in checked_codes.get(directive.source.file, ())
        ):
            where = "in this file" if directive.line is None else "here"
            message = f"unused ignore comment: no finding {code} {where}"
            if directive.code in UNIGNORABLE:
                message = f"{code} is about ignore comments and cannot be ignored"
            found = _report("lint/unused-ignore", message, directive, "remove it")
            yield structs.replace(found, edits=(directive.removal_edit(),))


def _report(code: str, message: str, directive: IgnoreDirective, hint: str | None) -> Diagnostic:
    return directive.source.diagnostic(code, message, directive.span, hint=hint, severity="warning")
