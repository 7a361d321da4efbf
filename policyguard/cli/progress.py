"""A progress bar for replays, and their interruption."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType

from policyguard.simulate.job import ProgressCallback, StoppedError


@contextmanager
def track_progress(files: Sequence[Path]) -> Iterator[ProgressCallback]:
    """Yield a progress callback that stops a replay at the first interrupt.

    At a terminal there is a progress bar. The second interrupt ends the process at once.
    """
    bar = _progress_bar(files) if sys.stderr.isatty() else nullcontext(lambda done, events: None)
    with _catch_interrupt() as interrupted, bar as show_progress:

        def on_progress(done: int, events: int) -> None:
            show_progress(done, events)
            if interrupted.is_set():
                raise StoppedError

        yield on_progress


@contextmanager
def _catch_interrupt() -> Iterator[threading.Event]:
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted  # interrupts reach the main thread only
        return
    before = signal.getsignal(signal.SIGINT)

    def handle_interrupt(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, handle_interrupt)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _progress_bar(files: Sequence[Path]) -> Iterator[ProgressCallback]:
    """Show how much has been read, how fast, and how long the rest will take."""
    # rich is slow to import, and needed here only
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("replaying"),
        BarColumn(),
        TextColumn(
            "{task.percentage:>3.0f} %  {task.fields[events]:,} events, {task.fields[rate]}"
        ),
        TimeRemainingColumn(),
    )
    total = sum(file.stat().st_size for file in files if file.is_file())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total, events=0, rate="")
        read = 0

        def on_progress(done: int, events: int) -> None:
            nonlocal read
            read += events
            elapsed = progress.tasks[0].elapsed or 0.0
            rate = f"{read / elapsed:,.0f}/s" if elapsed else ""
            progress.update(task, advance=done, events=read, rate=rate)

        yield on_progress
