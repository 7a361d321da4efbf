"""Clusters of errors that share their words, position by position.

Each error is represented by one line, normalized as the compiler does to find *the same error*.
Lines with the same number of words that agree in most of them form a cluster; a gap replaces words
that differ. (After Drain: He, Zhu, Zheng, Lyu 2017.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from policyguard.report.replay.figures import UnmatchedFigures

GAP = ""
"""Replaces a word that differs."""
MASK = "#"
_MIN_SIMILARITY = 0.6
"""The minimum share of words that two lines of a cluster have in common."""
_MAX_WORDS = 20
_MAX_CHARS = 200
"""Words and characters of a line to compare."""
_TRACEBACK = "Traceback (most recent call last)"
_WORD = re.compile(r"[^\W\d_]{3,}")

ErrorTemplate = tuple[str, ...]
"""The words of a line, with `MASK` for masked parts and `GAP` for words that differ."""


@dataclass
class ErrorKind:
    """One kind of error: its first text, how often it occurs, and in which sessions."""

    error: UnmatchedFigures
    hits: int
    sessions: set[str]


@dataclass
class ErrorCluster:
    """Errors that share a template. `lines` has one example a kind; `shown` redacts secrets."""

    template: ErrorTemplate
    hits: int = 0
    tools: dict[str, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    sessions: set[str] = field(default_factory=set)

    @property
    def words(self) -> list[str]:
        """The words in common: letters only, at least three."""
        return [word for token in self.template for word in _WORD.findall(token)]

    def add(self, kind: ErrorKind, line: str, shown: str) -> None:
        """Add a kind of error."""
        self.hits += kind.hits
        self.tools[kind.error.tool] = self.tools.get(kind.error.tool, 0) + kind.hits
        self.lines.append(line)
        self.shown.append(shown)
        self.sessions.update(kind.sessions)


def cluster_errors(
    kinds: Iterable[ErrorKind], mask: Callable[[str], str], redact: Callable[[str], str]
) -> list[ErrorCluster]:
    """Cluster errors, most frequent first. `redact` removes secrets, `mask` also normalizes."""
    by_shape: dict[tuple[int, str], list[ErrorCluster]] = {}
    clusters: list[ErrorCluster] = []
    for kind in sorted(kinds, key=lambda kind: -kind.hits):
        line = summary_line(kind.error.error)
        tokens = tuple(mask(line).split()[:_MAX_WORDS])
        candidates = by_shape.setdefault((len(tokens), tokens[0] if tokens else ""), [])
        cluster = next((one for one in candidates if _is_similar(one.template, tokens)), None)
        if cluster is None:
            cluster = ErrorCluster(tokens)
            candidates.append(cluster)
            clusters.append(cluster)
        cluster.template = _merge_templates(cluster.template, tokens)
        cluster.add(kind, line, redact(line))
    return sorted(clusters, key=lambda cluster: -cluster.hits)


def summary_line(error: str) -> str:
    """Return the most informative line of an error: the first, or the last of a traceback."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    if not lines:
        return ""
    line = lines[-1] if lines[0].startswith(_TRACEBACK) else lines[0]
    if len(line) > _MAX_CHARS:
        line = line[:_MAX_CHARS].rpartition(" ")[0]
    return line.removesuffix("…").rstrip()


def _is_similar(one: ErrorTemplate, other: ErrorTemplate) -> bool:
    same = sum(a == b != MASK for a, b in zip(one, other, strict=True))
    unmasked = sum(word != MASK for word in other)
    return one == other or (unmasked > 0 and same / unmasked >= _MIN_SIMILARITY)


def _merge_templates(one: ErrorTemplate, other: ErrorTemplate) -> ErrorTemplate:
    return tuple(a if a == b else GAP for a, b in zip(one, other, strict=True))
