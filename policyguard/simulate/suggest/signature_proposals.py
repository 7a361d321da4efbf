"""Clusters of errors → signatures that a person can take over, each verified against the runs."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from policyguard.compiler import CompiledPolicy
from policyguard.compiler.build.outcome_matchers import (
    MAX_SCANNED_CHARS,
    ErrorNormalizer,
    SignatureMatcher,
)
from policyguard.engines.regex import Regex
from policyguard.model.event import Completed
from policyguard.report.suggest.figures import ErrorsFigures, SignatureProposal, UnproposedFigures
from policyguard.simulate.error_kinds import MAX_KINDS as MOST_KINDS
from policyguard.simulate.suggest.error_clusters import (
    MASK,
    ErrorCluster,
    ErrorKind,
    ErrorTemplate,
    cluster_errors,
)
from policyguard.simulate.suggest.override_layer import replace_surrogates
from policyguard.simulate.suggest.replayed_sessions import SessionResult
from policyguard.traces import Skipped, TraceFile

MAX_PROPOSALS = 10
"""Signatures that are proposed."""
_MIN_ERRORS = 2
"""Errors that there must be of a kind."""
_MIN_WORDS = 2
"""Words that a skeleton must have, and the letters of all of them: less says too little."""
_MIN_LETTERS = 8
_MAX_EXAMPLES = 3
_MAX_ID_WORDS = 4
"""Words of a skeleton that its id is made of."""
_MIN_ERROR_STATUS = 400

_ANY_WORD = r"\S+"
_SEPARATORS = (" ", r"\s+")
_SPECIAL = frozenset(r"\.+*?()|[]{}^$")


def group_errors(sessions: Iterable[SessionResult]) -> list[ErrorKind]:
    """The errors of all sessions that no signature knows, by what they say."""
    found: dict[str, ErrorKind] = {}
    for session in sessions:
        for error in session.errors:
            kind = found.setdefault(error.error, ErrorKind(error, 0, set()))
            kind.hits += error.hits
            kind.sessions.add(session.name)
    return heapq.nlargest(MOST_KINDS, found.values(), key=lambda kind: kind.hits)


def propose_signatures(
    compiled: CompiledPolicy,
    sessions: Sequence[SessionResult],
    traces: Callable[[], Iterator[TraceFile]],
) -> tuple[ErrorsFigures, list[SignatureProposal]]:
    """Signatures for the most frequent errors, and what is said of the others."""
    errors = ErrorNormalizer(compiled.fingerprinter)
    grouped = cluster_errors(
        group_errors(sessions),
        mask=lambda line: errors.mask(_redact(compiled, line, MASK)),
        redact=lambda line: _redact(compiled, line),
    )
    figures = ErrorsFigures(
        known=sum(session.known_errors for session in sessions),
        unknown=sum(cluster.hits for cluster in grouped),
    )
    taken = {signature.id for signature in compiled.policy.signatures}
    known = SignatureMatcher(compiled.policy.signatures)
    found: list[SignatureProposal] = []
    left: dict[str, list[int]] = {}
    for cluster in grouped:
        proposal, why = _propose_one(cluster, known, taken)
        if proposal is not None and len(found) == MAX_PROPOSALS:
            proposal, why = None, "less frequent than those proposed"
        if proposal is not None and _any_matches(found, cluster.lines):
            proposal, why = None, "another that is proposed finds some of them"
        if proposal is None:
            left.setdefault(why, []).append(cluster.hits)
        else:
            found.append(proposal)
            taken.add(proposal.id)
    kept = []
    for proposal, against in zip(found, _find_objections(found, known, traces), strict=True):
        if against:
            left.setdefault(against, []).append(proposal.hits)
        else:
            kept.append(proposal)
    figures.unproposed = [
        UnproposedFigures(why, len(hits), sum(hits)) for why, hits in sorted(left.items())
    ]
    return figures, kept


def build_pattern(template: ErrorTemplate, separator: str = _SEPARATORS[0]) -> str:
    """An RE2 pattern for lines with this skeleton: its words, and anything for what differs."""
    tokens = [_quote_token(token) for token in template]
    while tokens and tokens[0] == _ANY_WORD:
        del tokens[0]
    while tokens and tokens[-1] == _ANY_WORD:
        del tokens[-1]
    text = separator.join(tokens)
    begins = r"\b" if re.match(r"[A-Za-z0-9_]", text) else ""
    ends = r"\b" if re.search(r"(?:^|[^\\])[A-Za-z0-9_]\Z", text) else ""
    return f"{begins}{text}{ends}"


def _quote_token(token: str) -> str:
    if not token or not token.isprintable() or token.strip(MASK) == "":
        return _ANY_WORD
    return _ANY_WORD.join(map(_escape, re.split(f"{MASK}+", token)))


def _escape(text: str) -> str:
    return "".join(f"\\{c}" if c in _SPECIAL else c for c in text)


def _propose_one(
    cluster: ErrorCluster, known: SignatureMatcher, taken: set[str]
) -> tuple[SignatureProposal | None, str]:
    """A signature for a cluster, or why there is none."""
    words = cluster.words
    if cluster.hits < _MIN_ERRORS:
        return None, "seen only once"
    if len(words) < _MIN_WORDS or sum(map(len, words)) < _MIN_LETTERS:
        return None, "too few words in common to know them by"
    lines = [replace_surrogates(line) for line in cluster.lines]
    patterns = (build_pattern(cluster.template, between) for between in _SEPARATORS)
    pattern = next((one for one in patterns if all(map(Regex(one).search, lines))), None)
    if pattern is None:
        return None, "no pattern of their words finds all of them"
    find = Regex(pattern).search
    shown = dict.fromkeys(replace_surrogates(line) for line in cluster.shown)
    examples = [line for line in shown if find(line) and known.match(line, failed=True) is None]
    if not examples:
        return None, "cut to a line, they are told as another signature"
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
    plain = [word.lower() for word in dict.fromkeys(words) if word.isascii()][:_MAX_ID_WORDS]
    stem = found = "_".join(plain)[:60] or "error"
    number = 1
    while found in taken:
        number += 1
        found = f"{stem}_{number}"
    return found


def _any_matches(proposals: Iterable[SignatureProposal], lines: Iterable[str]) -> bool:
    """Whether one of the proposals finds something in one of the lines."""
    return any(any(map(Regex(one.pattern).search, lines)) for one in proposals)


def _find_objections(
    proposals: Sequence[SignatureProposal],
    known: SignatureMatcher,
    traces: Callable[[], Iterator[TraceFile]],
) -> list[str]:
    """What speaks against each: it finds something in results that it should leave alone.

    Those are the results that the recording does not call failed, and the failures that a signature
    of the policy knows: a new signature is asked before those.
    """
    against = [""] * len(proposals)
    if not proposals:
        return against
    patterns = [Regex(proposal.pattern) for proposal in proposals]
    for trace in traces():
        for item in trace:
            if isinstance(item, Skipped) or not isinstance(item, Completed):
                continue
            failed = _has_failed(item)
            text = item.error if failed and item.error is not None else item.text
            if len(text) > 2 * MAX_SCANNED_CHARS:
                text = f"{text[:MAX_SCANNED_CHARS]}\n{text[-MAX_SCANNED_CHARS:]}"
            for place, pattern in enumerate(patterns):
                if against[place] or not pattern.search(text):
                    continue
                if not failed:
                    against[place] = "results that did not fail say the same"
                elif known.match(text, failed=True) is not None:
                    against[place] = "errors that a signature knows say the same"
    return against


def _has_failed(event: Completed) -> bool:
    if event.ok is not None or event.error is not None:
        return event.ok is False or event.error is not None
    return bool(event.exit_code) or (event.status or 0) >= _MIN_ERROR_STATUS


def _redact(compiled: CompiledPolicy, text: str, mark: str = "") -> str:
    """The text without what any pattern of the policy finds, whether its journal would tell or not.

    In its place stands `mark`, or the pattern's name.
    """
    for name, pattern in compiled.policy.patterns.items():
        text = Regex(pattern.match).replace(text, mark or f"[{name}]")
    return text
