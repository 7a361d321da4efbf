"""What long commands show meanwhile on standard error, and their interruption."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType

import click

from policyguard.simulate.jobs.job import ProgressCallback, StoppedError

_CLEAR_LINE, _CLEAR_LINE_ABOVE = "\r\x1b[2K", "\x1b[1A\x1b[2K"


@contextmanager
def track_progress(files: Sequence[Path], *, passes: int = 1) -> Iterator[ProgressCallback]:
    """Yield a progress callback that stops a replay at the first interrupt.

    At a terminal there is a progress bar; `passes` says how often the files are read. The second
    interrupt ends the process at once.
    """
    bar = _progress_bar(files, passes) if sys.stderr.isatty() else nullcontext(_show_nothing)
    with _catch_interrupt() as interrupted, bar as show_progress:

        def on_progress(done: int, events: int, note: str = "") -> None:
            show_progress(done, events, note)
            if interrupted.is_set():
                raise StoppedError

        yield on_progress


def _show_nothing(done: int, events: int, note: str = "") -> None:
    pass


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
def _progress_bar(files: Sequence[Path], passes: int) -> Iterator[ProgressCallback]:
    """Show how much has been read, how fast, and how long the rest will take."""
    total = passes * sum(file.stat().st_size for file in files if file.is_file())
    began, read, seen = time.monotonic(), 0, 0
    with click.progressbar(
        length=total,
        label="replaying",
        width=0,
        show_eta=False,  # it goes by the last few steps, which are uneven
        file=sys.stderr,
        item_show_func=lambda item: item,
    ) as bar:

        def on_progress(done: int, events: int, note: str = "") -> None:
            nonlocal read, seen
            read += events
            seen += done
            seconds = max(time.monotonic() - began, 0.001)
            facts = [f"{read:,} events, {read / seconds:,.0f}/s", note]
            if 0 < seen < total:
                facts.append(f"{_format_seconds(seconds * (total - seen) / seen)} left")
            bar.update(done, ", ".join(filter(None, facts)))

        yield on_progress
    click.echo(_CLEAR_LINE_ABOVE, nl=False, err=True)


def _format_seconds(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def show_status() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the current step at a terminal, on one line."""
    if not sys.stderr.isatty():
        yield lambda step: None
        return
    try:
        yield lambda step: click.echo(f"{_CLEAR_LINE}{step}", nl=False, err=True)
    finally:
        click.echo(_CLEAR_LINE, nl=False, err=True)
