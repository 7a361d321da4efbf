"""`policyguard simulate`: a job to its report, the same bytes whatever executes it."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from policyguard.report.replay.figures import Figures
from policyguard.simulate.jobs.job import (
    ONE_PROCESS,
    Executor,
    Job,
    JobInputs,
    ProgressCallback,
    load_inputs,
)
from policyguard.simulate.jobs.line_shard import LineShard
from policyguard.simulate.jobs.workers import find_sequential_entries
from policyguard.simulate.replay import Replay
from policyguard.simulate.sample.census import start_census
from policyguard.simulate.sample.sampling import Draw, SessionSample
from policyguard.simulate.tally import Tally


def simulate(
    job: Job,
    inputs: JobInputs,
    on_progress: ProgressCallback,
    executor: Executor = ONE_PROCESS,
) -> Figures:
    """Replay a job, by default in this process, and return its report.

    Entries that count across sessions require one process. Raises `WorkerError`.
    """
    is_sequential = bool(find_sequential_entries(inputs))
    if is_sequential:
        executor = ONE_PROCESS
    job = replace(job, revision=inputs.revision, by_time=is_sequential)
    if job.sample is not None:
        strata, stopped = executor.fold(start_census, job, inputs, on_progress)
        if stopped:
            nothing = start_replay(job, inputs, LineShard(), lambda: None).stop()
            return build_report(job, inputs, nothing, partial=True)
        draw = Draw(strata.agents, tuple(strata.sizes()), strata.drawn_numbers())
        job = replace(job, draw=draw)
    tally, stopped = executor.fold(start_replay, job, inputs, on_progress)
    return build_report(job, inputs, tally, partial=stopped)


def start_replay(
    job: Job, inputs: JobInputs | None, shard: LineShard, on_progress: Callable[[], None]
) -> Replay:
    """Start to replay the lines of a shard."""
    inputs = inputs or load_inputs(job)
    return Replay(
        inputs.policy,
        observe=job.observe,
        labels=inputs.labels,
        baseline=inputs.baseline,
        report_size=job.report_size,
        on_progress=on_progress,
        shard=shard,
        sample=None if job.sample is None else SessionSample(job.sample, job.draw),
    )


def build_report(job: Job, inputs: JobInputs, tally: Tally, *, partial: bool) -> Figures:
    """Return the report of a job."""
    compiled = [inputs.policy, *filter(None, [inputs.baseline])]
    figures = tally.build_figures(compiled, inputs.labels, partial=partial)
    figures.traces.named_files = len(job.files)
    figures.traces.sample = job.sample
    return figures
