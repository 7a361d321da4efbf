"""Calls whose end cannot be written: the caller gets the result, the error is logged."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from policyguard import Session
from policyguard.journal.errors import JournalError
from policyguard.journal.journal_file import JournalFile
from tests.guard.running.time_limits import OpenSession


class Disk:
    """A disk that may become full."""

    def __init__(self, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        self.session = session
        self._monkeypatch = monkeypatch

    def fill(self) -> None:
        def append(writer: JournalFile, *_: object) -> None:
            raise JournalError(writer.path, "cannot be written: it is full", "make room")

        self._monkeypatch.setattr(JournalFile, "append", append)


@pytest.fixture
def disk(open_session: OpenSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(open_session(store=tmp_path / "state" / "store.db"), monkeypatch)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_interruption_is_raised_even_if_it_cannot_be_written(
    disk: Disk, kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def fn() -> None:
        disk.fill()
        raise kind

    with pytest.raises(kind):
        disk.session.run("untimed", {}, fn)
    assert "`untimed` (c1), journal: " in caplog.text
    assert "it is full; make room" in caplog.text


@pytest.mark.parametrize("tool", ["untimed", "quick"])
def test_cancellation_is_raised_even_if_it_cannot_be_written(disk: Disk, tool: str) -> None:
    async def fn() -> None:
        disk.fill()
        await asyncio.sleep(60)

    async def main() -> None:
        task = asyncio.create_task(disk.session.arun(tool, {}, fn))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(main())


@pytest.mark.parametrize("fails", [False, True])
def test_result_that_cannot_be_written_is_returned_and_logged(
    disk: Disk, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    @disk.session.guard.tool
    def quick() -> str:
        disk.fill()
        if fails:
            raise ZeroDivisionError
        return "done"

    with disk.session:
        if fails:
            with pytest.raises(ZeroDivisionError):
                quick()
        else:
            assert quick() == "done"
    (record,) = caplog.records
    assert (record.levelname, record.name) == ("WARNING", "policyguard")
    assert record.getMessage().startswith("`quick` (c1), journal: ")
