"""What speaks against proposed signatures in recorded results, as a fold over recordings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from policyguard.compiler.build.outcome_matchers import MAX_SCANNED_CHARS, SignatureMatcher
from policyguard.engines.regex import RegexSet
from policyguard.model.event import Completed
from policyguard.simulate.jobs.job import Job, JobInputs, load_inputs
from policyguard.simulate.jobs.line_shard import LineShard
from policyguard.traces import Reader, Skipped, TraceFile
from policyguard.traces.session_trees import SessionTree

_MIN_ERROR_STATUS = 400
_REASONS = (
    "the pattern also matches results that did not fail",
    "the pattern also matches errors of an existing signature",
)


class Objections:
    """For each pattern, which of the two reasons against it occur."""

    def __init__(self, patterns: int) -> None:
        self.events = 0
        self.found = [[False, False] for _ in range(patterns)]

    def merge(self, other: Objections) -> None:
        """Add the objections of another part."""
        self.events += other.events
        for mine, others in zip(self.found, other.found, strict=True):
            mine[:] = [one or another for one, another in zip(mine, others, strict=True)]

    def reasons(self) -> list[str]:
        """Return the first reason against each pattern; empty for none."""
        return [
            next((why for why, is_found in zip(_REASONS, found, strict=True) if is_found), "")
            for found in self.found
        ]


class ObjectionsFold:
    """A fold that looks for results that proposed patterns must not match.

    Those are successful results, and failures that an existing signature matches: the new one
    would take precedence.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        known: SignatureMatcher,
        shard: LineShard | None = None,
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:
        self._patterns = [
            RegexSet([pattern], head=MAX_SCANNED_CHARS, tail=MAX_SCANNED_CHARS)
            for pattern in patterns
        ]
        self._known = known
        self._shard = shard or LineShard()
        self._on_progress = on_progress
        self._objections = Objections(len(patterns))

    @property
    def events(self) -> int:
        """The number of events read."""
        return self._objections.events

    def add(
        self, trace: TraceFile, order: tuple[int, int] | None = None, *, whole: bool = False
    ) -> None:
        """Look at the results of a file."""
        self._shard.begin(whole=whole)
        for item in trace:
            if isinstance(item, Skipped):
                continue
            self._objections.events += 1
            if isinstance(item, Completed):
                self._add_result(item)
        self._on_progress()

    def add_tree(self, reader: Reader, files: Sequence[Path], tree: SessionTree) -> None:
        """Look at the results of several files."""
        for index in tree.indices:
            for trace in reader.iter_files(files[index]):
                self.add(trace, whole=True)

    def stop(self) -> Objections:
        """Return the objections."""
        return self._objections

    def _add_result(self, event: Completed) -> None:
        failed = _has_failed(event)
        text = event.error if failed and event.error is not None else event.text
        for pattern, found in zip(self._patterns, self._objections.found, strict=True):
            if found[failed] or pattern.first_match(text) is None:
                continue
            found[failed] = not failed or self._known.match(text, failed=True) is not None


def start_objections(
    patterns: tuple[str, ...],
    job: Job,
    inputs: JobInputs | None,
    shard: LineShard,
    on_progress: Callable[[], None],
) -> ObjectionsFold:
    """Start to look for objections in a shard."""
    policy = (inputs or load_inputs(job)).policy.policy
    return ObjectionsFold(patterns, SignatureMatcher(policy.signatures), shard, on_progress)


def _has_failed(event: Completed) -> bool:
    if event.ok is not None or event.error is not None:
        return event.ok is False or event.error is not None
    return bool(event.exit_code) or (event.status or 0) >= _MIN_ERROR_STATUS
