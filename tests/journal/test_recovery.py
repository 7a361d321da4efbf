"""A process may die at any byte: the next one continues, and no honest chain fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard.journal import format as line_format
from policyguard.journal.errors import AlteredError, JournalError
from policyguard.journal.verify import verify
from policyguard.model.event import SessionStarted, TurnStarted
from policyguard.store.errors import StoreError
from tests.journal.setup import JournalSetup, run


def codes(setup: JournalSetup) -> list[str]:
    return [finding.code for finding in verify([setup.folder], anchors=setup.anchors).findings]


def truncate(setup: JournalSetup, size: int) -> None:
    path = setup.journal.path_of("s")
    path.write_bytes(path.read_bytes()[:size])


def test_death_at_any_byte_after_the_anchor_is_repaired_and_reported(tmp_path: Path) -> None:
    for keep in range(1, 10_000):
        setup = JournalSetup(tmp_path / str(keep))
        setup.write(*run(close=False))
        anchor = setup.anchors.get("s")
        assert anchor is not None
        assert (anchor.count, len(setup.lines())) == (8, 9)
        last = setup.lines()[-1]
        if keep > len(last):
            break
        truncate(setup, anchor.size + keep)
        whole, torn = keep == len(last), keep < len(last)
        result = verify([setup.folder], anchors=setup.anchors)
        assert not result.has_failed
        assert [finding.code for finding in result.findings] == (
            ["journal/torn-line"] if torn else ["journal/unanchored"]
        )
        setup.restart()
        setup.write(TurnStarted("s"))
        adopted = whole or keep == len(last) - 1  # all but the line feed is there
        remaining = run(close=False)[: 8 + adopted]
        assert list(setup.journal.read_events("s")) == [*remaining, TurnStarted("s")]
        expected = ["journal/adopted" if adopted else "journal/repaired"]
        assert [finding.code for finding in setup.findings] == expected
        assert codes(setup) == expected
    else:
        pytest.fail("the last line has no end")


def test_death_in_the_first_line(tmp_path: Path) -> None:
    whole = JournalSetup(tmp_path / "whole")
    whole.write(SessionStarted("s"))
    size = len(whole.lines()[0])
    for keep in range(size):
        setup = JournalSetup(tmp_path / str(keep))
        setup.write(SessionStarted("s"))
        truncate(setup, keep)
        assert not verify([setup.folder], anchors=setup.anchors).has_failed
        setup.restart()
        setup.write(TurnStarted("s"))
        first = [SessionStarted("s")] if keep == size - 1 else []
        assert list(setup.journal.read_events("s")) == [*first, TurnStarted("s")]
        assert codes(setup) == ["journal/adopted"] * len(first)


def test_a_cut_before_the_anchor_is_an_error(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    setup.write(*run())
    whole = setup.journal.path_of("s").read_bytes()
    borders = [at + by for at in range(len(whole)) if whole[at : at + 1] == b"\n" for by in (0, 1)]
    for size in sorted({*range(0, len(whole), 37), *borders, len(whole) - 1} - {len(whole)}):
        truncate(setup, size)
        result = verify([setup.folder], anchors=setup.anchors)
        assert result.has_failed
        assert "journal/cut-tail" in [finding.code for finding in result.findings]
        setup.restart()
        with pytest.raises(AlteredError, match=r"was altered: .*policyguard journal verify"):
            setup.write(TurnStarted("s"))
        with pytest.raises(AlteredError, match="was altered"):
            list(setup.journal.read_events("s"))
        assert setup.journal.path_of("s").stat().st_size == size
        setup.journal.path_of("s").write_bytes(whole)
    setup.restart()
    setup.write(TurnStarted("s"))


def test_a_removed_file_is_not_replaced(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    setup.write(*run())
    setup.journal.path_of("s").unlink()
    with pytest.raises(AlteredError):
        setup.write(SessionStarted("s"))
    with pytest.raises(AlteredError):
        list(setup.journal.read_events("s"))


def test_a_file_that_differs_from_its_anchor(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    setup.write(*run())
    path = setup.journal.path_of("s")
    anchor = setup.anchors.get("s")
    assert anchor is not None
    setup.restart()
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    with pytest.raises(AlteredError, match=f"has 100 bytes, but {len(whole)} were anchored"):
        setup.write(TurnStarted("s"))
    other = JournalSetup(tmp_path / "other")
    other.write(*run())  # an intact chain of the same size
    path.write_bytes(b"".join(other.lines()))
    assert path.stat().st_size == anchor.size
    with pytest.raises(AlteredError, match="line 10 differs from the anchored one"):
        setup.write(TurnStarted("s"))
    with pytest.raises(AlteredError, match="line 10 differs from the anchored one"):
        list(setup.journal.read_events("s"))


def test_unanchored_lines_are_adopted_only_if_the_chain_is_intact(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    setup.write(*run(close=False)[:7])  # anchored up to the second
    good = setup.lines()
    setup.restart()
    path = setup.journal.path_of("s")
    for bad in (
        [*good[:5], good[5].replace(b"read", b"wipe"), good[6]],
        [*good[:5], good[6]],
        [*good[:5], good[6], good[5]],
        [*good, good[6]],
        [*good, b"\n"],
        [*good, b'{"event":"closed","session":"s"}\n'],
    ):
        path.write_bytes(b"".join(bad))
        with pytest.raises(AlteredError, match="was altered: line"):
            setup.write(TurnStarted("s"))
    path.write_bytes(b"".join(good))
    setup.write(TurnStarted("s"))
    assert [finding.code for finding in setup.findings] == ["journal/adopted"]
    assert "5 lines" in setup.findings[0].message


def test_without_an_anchor_the_whole_chain_is_followed(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    setup.write(*run())
    setup.anchors.delete("s")
    setup.restart()
    setup.write(TurnStarted("s"))
    assert len(list(setup.journal.read_events("s"))) == 11
    setup.restart()
    setup.anchors.delete("s")
    lines = setup.lines()
    lines[1] = lines[1].replace(b'"at":1', b'"at":2', 1)
    setup.journal.path_of("s").write_bytes(b"".join(lines))
    with pytest.raises(AlteredError, match="line 2 was edited"):
        setup.write(TurnStarted("s"))


def test_opening_does_not_read_lines_before_the_anchor(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    setup.write(*run())
    setup.restart()
    path = setup.journal.path_of("s")
    content = path.read_bytes()
    path.write_bytes(content.replace(b"pytest", b"python", 1))
    setup.write(TurnStarted("s"))  # opening costs the same however long the journal is
    assert codes(setup) == ["journal/edited"]  # verify reads all lines
    with pytest.raises(AlteredError):
        list(setup.journal.read_events("s"))


@pytest.mark.parametrize("key", [b"", b"k" * 32])
def test_opening_does_not_need_the_first_line(tmp_path: Path, key: bytes) -> None:
    setup = JournalSetup(tmp_path, key=key or None)
    setup.write(*run())
    setup.restart()
    path = setup.journal.path_of("s")
    first, _, rest = path.read_bytes().partition(b"\n")
    path.write_bytes(b"x" * len(first) + b"\n" + rest)
    setup.write(TurnStarted("s"))
    assert codes(setup)[0] == "journal/edited"


def test_a_chain_continues_with_its_own_key_only(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path, key=b"k" * 32)
    setup.write(SessionStarted("s"))
    setup.restart()
    setup.write(TurnStarted("s"))
    assert len(list(setup.journal.read_events("s"))) == 2
    for key in (b"other", None):
        setup.options["key"] = key
        setup.restart()
        with pytest.raises(JournalError, match="begun with another key, or without one; use"):
            setup.write(TurnStarted("s"))


def test_without_a_note_nothing_is_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = JournalSetup(tmp_path)
    setup.write(*run(close=False))
    with setup.journal.path_of("s").open("ab") as file:
        file.write(b'{"event"')
    before = setup.lines()
    setup.restart()

    def fail(_: object) -> None:
        raise StoreError(tmp_path, "is locked", "wait")

    monkeypatch.setattr(setup.anchors, "add_note", fail)
    with pytest.raises(JournalError, match="repaired, which cannot be noted: is locked; wait"):
        setup.write(TurnStarted("s"))
    assert setup.lines() == before
    monkeypatch.undo()
    setup.write(TurnStarted("s"))
    assert [finding.code for finding in setup.findings] == ["journal/adopted", "journal/repaired"]


def test_lines_as_they_were_written_are_not_decoded_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a long session would take twice as long: the other way is for reformatted lines."""
    setup = JournalSetup(tmp_path)
    setup.write(SessionStarted("s"), TurnStarted("s"))
    monkeypatch.setattr(line_format, "_decode_rewritten", None)
    assert list(setup.journal.read_events("s")) == [SessionStarted("s"), TurnStarted("s")]
