"""The options of commands that replay recordings on several processes or a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from policyguard.cli.terminal.status import status, usage_error
from policyguard.simulate.clusters.cluster import ENGINES, connect
from policyguard.simulate.jobs.job import ONE_PROCESS, Executor
from policyguard.simulate.jobs.workers import LocalProcesses, count_useful_workers

_OPTIONS = (
    click.option(
        "--workers",
        type=click.IntRange(1, 256),
        default=1,
        show_default=True,
        help="The number of processes. The result stays the same.",
    ),
    click.option(
        "--executor",
        type=click.Choice(["local", *ENGINES]),
        default="local",
        show_default=True,
        help="What runs the workers. The result stays the same.",
    ),
    click.option(
        "--address",
        default="",
        metavar="ADDRESS",
        help="Of a running cluster; files must have the same paths there. [default: the engine's "
        "own setting, else a cluster of --workers on this machine]",
    ),
)


def executor_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--workers`, `--executor` and `--address` to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@contextmanager
def open_executor(
    executor: str, address: str, workers: int, files: Sequence[Path], sequential: Sequence[str] = ()
) -> Iterator[Executor]:
    """Yield the executor that the options name; `sequential` entries require one process.

    Raises `WorkerError`.
    """
    if address and executor == "local":
        usage_error("--address: names a cluster; choose its engine with --executor")
    if sequential:
        if workers > 1 or executor != "local":
            status(f"using one worker: {', '.join(sequential)} count across sessions")
        yield ONE_PROCESS
    elif executor == "local":
        useful = count_useful_workers(workers, files)
        yield LocalProcesses(useful) if useful > 1 else ONE_PROCESS
    else:
        with connect(executor, address, workers) as connected:
            yield connected
