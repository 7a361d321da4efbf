"""Kinds of errors that belong together: those that share their words, place by place.

Each is told by one line of it, with what may differ between two appearances masked (the compiler's
notion of *the same error*). Lines of as many words that agree in most of them are one cluster;
where they differ stands a gap. (After Drain: He, Zhu, Zheng, Lyu 2017.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from policyguard.report.replay.figures import UnmatchedFigures

GAP = ""
"""In place of a word that differs."""
MASK = "#"
_MIN_SIMILARITY = 0.6
"""The share of words that two lines of one cluster have in common at least."""
_MAX_WORDS = 20
_MAX_CHARS = 200
"""Words and characters of a line that are looked at."""
_TRACEBACK = "Traceback (most recent call last)"
_WORD = re.compile(r"[^\W\d_]{3,}")

ErrorTemplate = tuple[str, ...]
"""The words of a line, in which `MASK` stands for what is masked; `GAP` for one that differs."""


@dataclass
class ErrorKind:
    """One kind of error: how often, in which sessions, and the first of them."""

    error: UnmatchedFigures
    hits: int
    sessions: set[str]


@dataclass
class ErrorCluster:
    """Errors that share a skeleton. `lines` are examples, one a kind; `shown`: without secrets."""

    template: ErrorTemplate
    hits: int = 0
    tools: dict[str, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    sessions: set[str] = field(default_factory=set)

    @property
    def words(self) -> list[str]:
        """The words that all of them have: letters only, three at least."""
        return [word for token in self.template for word in _WORD.findall(token)]

    def add(self, kind: ErrorKind, line: str, shown: str) -> None:
        """Take in a kind of error."""
        self.hits += kind.hits
        self.tools[kind.error.tool] = self.tools.get(kind.error.tool, 0) + kind.hits
        self.lines.append(line)
        self.shown.append(shown)
        self.sessions.update(kind.sessions)


def cluster_errors(
    kinds: Iterable[ErrorKind], mask: Callable[[str], str], redact: Callable[[str], str]
) -> list[ErrorCluster]:
    """Clusters, the most frequent first. `redacted` blots out secrets, `masked` those as well."""
    by_shape: dict[tuple[int, str], list[ErrorCluster]] = {}
    every: list[ErrorCluster] = []
    for kind in sorted(kinds, key=lambda kind: -kind.hits):
        line = summary_line(kind.error.error)
        tokens = tuple(mask(line).split()[:_MAX_WORDS])
        near = by_shape.setdefault((len(tokens), tokens[0] if tokens else ""), [])
        home = next((one for one in near if _is_similar(one.template, tokens)), None)
        if home is None:
            home = ErrorCluster(tokens)
            near.append(home)
            every.append(home)
        home.template = _merge_templates(home.template, tokens)
        home.add(kind, line, redact(line))
    return sorted(every, key=lambda one: -one.hits)


def summary_line(error: str) -> str:
    """The line of an error that tells what it is: the first, of a traceback the last."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    if not lines:
        return ""
    line = lines[-1] if lines[0].startswith(_TRACEBACK) else lines[0]
    if len(line) > _MAX_CHARS:
        line = line[:_MAX_CHARS].rpartition(" ")[0]
    return line.removesuffix("…").rstrip()


def _is_similar(one: ErrorTemplate, other: ErrorTemplate) -> bool:
    same = sum(a == b != MASK for a, b in zip(one, other, strict=True))
    telling_ = sum(word != MASK for word in other)
    return one == other or (telling_ > 0 and same / telling_ >= _MIN_SIMILARITY)


def _merge_templates(one: ErrorTemplate, other: ErrorTemplate) -> ErrorTemplate:
    return tuple(a if a == b else GAP for a, b in zip(one, other, strict=True))
