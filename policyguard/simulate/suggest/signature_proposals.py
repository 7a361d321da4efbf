"""Error clusters → proposals of signatures, each verified against the runs."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Sequence

from policyguard.compiler import CompiledPolicy
from policyguard.compiler.build.outcome_matchers import (
    ErrorNormalizer,
    SignatureMatcher,
)
from policyguard.engines.regex import Regex
from policyguard.report.suggest.figures import ErrorsFigures, SignatureProposal, UnproposedFigures
from policyguard.simulate.sessions.error_kinds import MAX_KINDS
from policyguard.simulate.suggest.error_clusters import (
    MASK,
    ErrorCluster,
    ErrorKind,
    ErrorTemplate,
    cluster_errors,
)
from policyguard.simulate.suggest.override_layer import replace_surrogates
from policyguard.simulate.suggest.session_results import SessionResult

MAX_PROPOSALS = 10
"""Signatures to propose."""
_MIN_ERRORS = 2
"""Errors that a cluster needs."""
_MIN_WORDS = 2
_MIN_LETTERS = 8
"""Words, and letters in all, that a template needs to be specific enough."""
_MAX_EXAMPLES = 3
_MAX_ID_WORDS = 4
"""Words of a template that form the id."""

_ANY_WORD = r"\S+"
_SEPARATORS = (" ", r"\s+")
_SPECIAL = frozenset(r"\.+*?()|[]{}^$")


def group_errors(sessions: Iterable[SessionResult]) -> list[ErrorKind]:
    """Group the errors that no signature matches by their text."""
    kinds: dict[str, ErrorKind] = {}
    for session in sessions:
        for error in session.errors:
            kind = kinds.setdefault(error.error, ErrorKind(error, 0, set()))
            kind.hits += error.hits
            kind.sessions.add(session.name)
    return heapq.nlargest(MAX_KINDS, kinds.values(), key=lambda kind: kind.hits)


def propose_signatures(
    compiled: CompiledPolicy,
    sessions: Sequence[SessionResult],
    find_objections: Callable[[list[str]], list[str]],
) -> tuple[ErrorsFigures, list[SignatureProposal]]:
    """Propose signatures for the most frequent errors, and count the others by reason.

    `find_objections` returns the objection to each of some patterns, empty for none.
    """
    errors = ErrorNormalizer(compiled.fingerprinter)
    clusters = cluster_errors(
        group_errors(sessions),
        mask=lambda line: errors.mask(_redact(compiled, line, MASK)),
        redact=lambda line: _redact(compiled, line),
    )
    figures = ErrorsFigures(
        known=sum(session.known_errors for session in sessions),
        unknown=sum(cluster.hits for cluster in clusters),
    )
    taken = {signature.id for signature in compiled.policy.signatures}
    known = SignatureMatcher(compiled.policy.signatures)
    proposals: list[SignatureProposal] = []
    rejected: dict[str, list[int]] = {}
    for cluster in clusters:
        proposal, why = _propose_one(cluster, known, taken)
        if proposal is not None and len(proposals) == MAX_PROPOSALS:
            proposal, why = None, "less frequent than those proposed"
        if proposal is not None and _any_matches(proposals, cluster.lines):
            proposal, why = None, "another proposal matches some of them"
        if proposal is None:
            rejected.setdefault(why, []).append(cluster.hits)
        else:
            proposals.append(proposal)
            taken.add(proposal.id)
    kept = []
    objections = find_objections([one.pattern for one in proposals]) if proposals else []
    for proposal, objection in zip(proposals, objections, strict=True):
        if objection:
            rejected.setdefault(objection, []).append(proposal.hits)
        else:
            kept.append(proposal)
    figures.unproposed = [
        UnproposedFigures(why, len(hits), sum(hits)) for why, hits in sorted(rejected.items())
    ]
    return figures, kept


def build_pattern(template: ErrorTemplate, separator: str = _SEPARATORS[0]) -> str:
    """Return an RE2 pattern for the lines of a template, with any word for its gaps."""
    tokens = [_quote_token(token) for token in template]
    while tokens and tokens[0] == _ANY_WORD:
        del tokens[0]
    while tokens and tokens[-1] == _ANY_WORD:
        del tokens[-1]
    text = separator.join(tokens)
    start = r"\b" if re.match(r"[A-Za-z0-9_]", text) else ""
    end = r"\b" if re.search(r"(?:^|[^\\])[A-Za-z0-9_]\Z", text) else ""
    return f"{start}{text}{end}"


def _quote_token(token: str) -> str:
    if not token or not token.isprintable() or token.strip(MASK) == "":
        return _ANY_WORD
    return _ANY_WORD.join(map(_escape, re.split(f"{MASK}+", token)))


def _escape(text: str) -> str:
    return "".join(f"\\{c}" if c in _SPECIAL else c for c in text)


def _propose_one(
    cluster: ErrorCluster, known: SignatureMatcher, taken: set[str]
) -> tuple[SignatureProposal | None, str]:
    """Return a signature for a cluster, or the reason why there is none."""
    words = cluster.words
    if cluster.hits < _MIN_ERRORS:
        return None, "seen only once"
    if len(words) < _MIN_WORDS or sum(map(len, words)) < _MIN_LETTERS:
        return None, "too few words in common"
    lines = [replace_surrogates(line) for line in cluster.lines]
    patterns = (build_pattern(cluster.template, separator) for separator in _SEPARATORS)
    pattern = next((text for text in patterns if all(map(Regex(text).search, lines))), None)
    if pattern is None:
        return None, "no pattern of their words matches all of them"
    search = Regex(pattern).search
    shown = dict.fromkeys(replace_surrogates(line) for line in cluster.shown)
    examples = [line for line in shown if search(line) and known.match(line, failed=True) is None]
    if not examples:
        return None, "an existing signature matches their summary lines"
    tool = max(cluster.tools, key=lambda tool: cluster.tools[tool])
    proposal = SignatureProposal(
        id=_make_id(words, taken),
        pattern=pattern,
        hits=cluster.hits,
        sessions=len(cluster.sessions),
        tool=tool,
        examples=examples[:_MAX_EXAMPLES],
    )
    return proposal, ""


def _make_id(words: Sequence[str], taken: set[str]) -> str:
    ascii_words = [word.lower() for word in dict.fromkeys(words) if word.isascii()][:_MAX_ID_WORDS]
    stem = id_ = "_".join(ascii_words)[:60] or "error"
    number = 1
    while id_ in taken:
        number += 1
        id_ = f"{stem}_{number}"
    return id_


def _any_matches(proposals: Iterable[SignatureProposal], lines: Iterable[str]) -> bool:
    """Return whether one of the proposals matches one of the lines."""
    return any(any(map(Regex(proposal.pattern).search, lines)) for proposal in proposals)


def _redact(compiled: CompiledPolicy, text: str, mark: str = "") -> str:
    """Replace whatever the policy's patterns match by `mark`, or by the pattern's name."""
    for name, pattern in compiled.policy.patterns.items():
        text = Regex(pattern.match).replace(text, mark or f"[{name}]")
    return text
