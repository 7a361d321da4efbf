"""Recorded runs under a policy, and beside it under the one that stood before."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from policyguard.compiler import Compiled, compile_policy
from policyguard.report.figures import Figures, SkippedFigures
from policyguard.simulate.errors import Order
from policyguard.simulate.labels import Labels
from policyguard.simulate.part import Part
from policyguard.simulate.player import Player, Where
from policyguard.simulate.run import Run
from policyguard.simulate.side import Side
from policyguard.simulate.silent import Tools, own
from policyguard.simulate.tally import Keep, Tally
from policyguard.traces import Reader, Skipped, TraceFile
from policyguard.traces.family import Family
from policyguard.traces.merged import Merged
from policyguard.traces.native import FORMAT

_KEY = b"policyguard simulate"


def load(policies: str | Path | Sequence[str | Path]) -> Compiled:
    """Compile a policy to replay under, as `compile_policy` does.

    Its fingerprints have a known key, so that a report can be made again to the byte: no
    fingerprint stands in a report. For a guard of your own, compile it anew.
    """
    compiled = compile_policy(policies)
    compiled.fingerprinter.rekey(_KEY)
    return compiled


def _warn(item: Skipped) -> None:
    place = f"{item.file}:{item.line}" if item.line else item.file
    warnings.warn(f"{place}: {item.reason}", stacklevel=3)


class Replay:
    """One replay of a policy over trace files, and what it amounts to.

    In mode `enforce` a refused call's result is not folded in, as it would never have come; with
    `observe` every call counts as it was recorded, refused or not. With a `baseline` each event
    goes through both policies. `heed` is called every now and then between two events, and may
    raise to stop; what there is until then is given by `finish`.
    """

    def __init__(
        self,
        compiled: Compiled,
        *,
        observe: bool,
        labels: Labels | None,
        baseline: Compiled | None = None,
        keep: Keep | None = None,
        heed: Callable[[], None] | None = None,
        part: Part | None = None,
    ) -> None:
        keep = keep or Keep()
        sides = [Side(one, observe=observe) for one in (compiled, baseline) if one is not None]
        known = own(compiled)
        self._tools = Tools(known)
        self.tally = Tally([side.policy for side in sides], keep, known)
        self._labels = labels
        self._part = part
        see = self._tools.see if known else None
        self._player = Player(sides, timelines=keep.timelines > 0, heed=heed, see=see)
        self._files = 0
        self._held: list[Run] = []

    @property
    def events(self) -> int:
        """How many events have been read."""
        return self._player.events

    def add(self, trace: TraceFile, number: tuple[int, int] | None = None) -> None:
        """Replay one file. Sessions still open at its end are over.

        `number` is its place among all files, by default after those before.
        """
        self._files += 1
        number = number or (self._files, 0)
        if self._part is not None:
            self._part.begin()
        part = self._part if trace.format == FORMAT else None
        first = part is None or part.number == 0
        if first:
            self._count(trace)

        def skipped(item: Skipped, place: int) -> None:
            if item.line is not None or first:
                self._skip(item, (*number, place))

        line = None if part is None or part.whole else lambda: part.line
        self._through(self._player.play(trace, _of(trace, number), skipped, line))

    def add_family(self, reader: Reader, files: Sequence[Path], family: Family) -> None:
        """Replay those of the files that are a family's as one, in the order of their times."""
        if self._part is not None:
            self._part.begin(whole=True)
        merged = Merged(reader, files, family, self._count)

        def where(place: int) -> tuple[TraceFile, Order]:
            return merged.trace, (family.places[merged.member], 0, merged.place)

        def skipped(item: Skipped, place: int) -> None:
            self._skip(item, where(place)[1])

        self._through(self._player.play(merged, where, skipped))

    def finish(self, *, partial: bool = False) -> Figures:
        """The figures, complete. `partial`: of what was read until the replay was stopped."""
        self.stop()
        return self.tally.conclude(self._labels, partial=partial)

    def stop(self) -> Tally:
        """Count what is still open, and read no more."""
        self._through(self._player.cut())
        self.tally.traces.events = self._player.events
        self.tally.met = self._tools.met
        return self.tally

    def _count(self, trace: TraceFile) -> None:
        traces = self.tally.traces
        if trace.format is not None:
            traces.files += 1
            traces.formats[trace.format] = traces.formats.get(trace.format, 0) + 1

    def _skip(self, item: Skipped, order: Order) -> None:
        self.tally.skip(order, SkippedFigures(item.file, item.line, item.reason))

    def _through(self, played: Iterable[Run]) -> None:
        for run in played:
            self._fold(run)
        self._let_go()

    def _fold(self, run: Run) -> None:
        """Count a session, unless it may turn out to be its file's only one, and that matters."""
        if self._labels is not None and self._labels.of_files and run.opening:
            self._held.append(run)
        else:
            self._label(run, alone=False)

    def _let_go(self) -> None:
        held, self._held = self._held, []
        several = self._part is not None and self._part.several
        for run in held:
            self._label(run, alone=self._player.begun[run.order[:-1]] == 1 and not several)

    def _label(self, run: Run, *, alone: bool) -> None:
        if self._labels is not None:
            places, success = self._labels.find(run.id, run.file, alone=alone)
            self.tally.matched.update(places)
            if success is not None:
                if run.success is not None and run.success is not success:
                    self.tally.labels.disagree += 1
                run.success = success
        self.tally.add(run)


def runs(
    compiled: Compiled,
    traces: Iterable[TraceFile],
    *,
    observe: bool = False,
    skipped: Callable[[Skipped], None] = _warn,
) -> Iterator[Run]:
    """The sessions of some files under one policy, each as soon as it has ended.

    `skipped` is told what was not read; by default that is a warning.
    """
    player = Player([Side(compiled, observe=observe)], timelines=False)
    for number, trace in enumerate(traces):
        where = _of(trace, (number, 0))
        yield from player.play(trace, where, lambda item, place: skipped(item))


def _of(trace: TraceFile, number: tuple[int, int]) -> Where:
    return lambda place: (trace, (*number, place))
