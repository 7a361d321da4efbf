"""With a key, nobody else can change or remove the anchor of a journal unnoticed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from policyguard.journal.anchors.export import anchor_lines, read_anchors
from policyguard.journal.anchors.mac import find_forgery
from policyguard.journal.chain import Chain, Hasher
from policyguard.journal.errors import AlteredError
from policyguard.journal.format import encode
from policyguard.journal.retention import prune
from policyguard.journal.retention_terms import Retention
from policyguard.journal.verify import verify
from policyguard.model.event import SessionStarted
from policyguard.store.memory.store import MemoryStore
from policyguard.store.protocol import Anchor, Caps, Pruned
from policyguard.store.sqlite.store import SqliteStore
from tests.journal.setup import CAPS, JournalSetup, run

KEY = b"k" * 32


@pytest.fixture
def setup(tmp_path: Path) -> JournalSetup:
    """Return a journal with a key and without refusals, turns and an end."""
    created = JournalSetup(tmp_path, key=KEY)
    created.write(*(SessionStarted("s", at=number) for number in range(6)))
    created.journal.close()
    return created


def codes(setup: JournalSetup) -> list[str]:
    result = verify([setup.folder], anchors=setup.anchors, key=KEY)
    return [finding.code.removeprefix("journal/") for finding in result.findings]


def anchor(setup: JournalSetup) -> Anchor:
    found = setup.anchors.get("s")
    assert found is not None
    return found


def cut(setup: JournalSetup, lines: int) -> Anchor:
    """Cut the journal's end, and return an anchor that fits what is left."""
    kept = setup.lines()[:-lines]
    setup.journal.path_of("s").write_bytes(b"".join(kept))
    last = json.loads(kept[-1])["hash"]
    known = anchor(setup)
    size = sum(map(len, kept))
    return msgspec.structs.replace(known, count=len(kept), hash=last, size=size)


def test_a_signed_anchor_has_no_finding(setup: JournalSetup) -> None:
    assert anchor(setup).mac
    assert codes(setup) == []
    setup.reopen().write(SessionStarted("s"))
    assert setup.findings == []


@pytest.mark.parametrize("mac", [None, "", "0" * 64, "é"])
def test_an_anchor_that_someone_else_lowered(setup: JournalSetup, mac: str | None) -> None:
    lowered = cut(setup, 2)
    setup.anchors.put(lowered if mac is None else msgspec.structs.replace(lowered, mac=mac))
    assert codes(setup) == ["forged-anchor"]
    with pytest.raises(AlteredError, match="was not made with its key"):
        setup.reopen().write(SessionStarted("s"))
    with pytest.raises(AlteredError, match="was not made with its key"):
        list(setup.reopen().read_events("s"))


@pytest.mark.parametrize("lines", [2, 4])
def test_an_anchor_that_someone_removed(setup: JournalSetup, lines: int) -> None:
    cut(setup, lines)
    setup.anchors.delete("s")
    assert codes(setup) == ["lost-anchor"]
    with pytest.raises(AlteredError, match="its anchor is gone"):
        setup.reopen().write(SessionStarted("s"))
    with pytest.raises(AlteredError, match="its anchor is gone"):
        list(setup.reopen().read_events("s"))
    assert len(setup.lines()) == 6 - lines


@pytest.mark.parametrize("field", ["chain", "count", "hash", "size", "at", "session"])
def test_the_mac_covers_each_field(setup: JournalSetup, field: str) -> None:
    known = anchor(setup)
    changed: object = {"chain": "0" * 32, "hash": "0" * 64, "session": "t"}.get(field, 1)
    other = msgspec.structs.replace(known, **{field: changed})
    hasher = Hasher(KEY)
    assert not find_forgery(known, hasher, hasher.key_id)
    assert find_forgery(other, hasher, hasher.key_id)


def test_the_first_line_is_anchored_before_the_second(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path, key=KEY)
    setup.write(SessionStarted("s"))
    assert anchor(setup).count == 1
    setup.write(SessionStarted("s"), SessionStarted("s"))
    assert anchor(setup).count == 1  # others wait for their time
    setup.restart()
    setup.write(SessionStarted("s"))
    assert [finding.code for finding in setup.findings] == ["journal/repaired"]


def test_a_line_after_a_restart_waits_for_its_time(setup: JournalSetup) -> None:
    setup.reopen().write(SessionStarted("s", at=6))
    assert anchor(setup).count == 6


def test_a_process_that_dies_before_the_first_anchor(setup: JournalSetup) -> None:
    cut(setup, 5)
    setup.anchors.delete("s")
    assert codes(setup) == ["no-anchor"]
    setup.reopen().write(SessionStarted("s"))
    assert [finding.code for finding in setup.findings] == ["journal/repaired"]


def test_an_evicted_anchor_is_not_missed(tmp_path: Path) -> None:
    store = MemoryStore(caps=Caps(constraints=1, grants=1, evidence=1, anchors=1))
    setup = JournalSetup(tmp_path, key=KEY, anchors=store.anchors)
    setup.write(*run("s"), *run("t"))
    setup.reopen().write(SessionStarted("s"))
    assert [finding.code for finding in setup.findings] == ["journal/repaired"]


def begin_as_before(setup: JournalSetup) -> None:
    """Rewrite the journal and its anchor as a version did that signed no anchors."""
    hasher = Hasher(KEY)
    chain = Chain(hasher, anchor(setup).chain, 0, hasher.genesis("s", anchor(setup).chain))
    chain._key_id = hasher.key_ids[1]
    events = (SessionStarted("s", at=number) for number in (1, 2))
    lines = [chain.seal(encode(event)[:-1].decode(), masked=False) for event in events]
    setup.journal.path_of("s").write_bytes(b"".join(lines))
    setup.anchors.put(Anchor("s", chain.id, 2, chain.hash, sum(map(len, lines)), 2))


def test_an_anchor_of_an_earlier_version_is_reported_once_and_signed(setup: JournalSetup) -> None:
    begin_as_before(setup)
    assert codes(setup) == ["unsigned-anchor"]
    assert len(list(setup.reopen().read_events("s"))) == 2
    journal = setup.reopen()
    journal.write(SessionStarted("s", at=3))
    signed = anchor(setup)
    assert (bool(signed.mac), signed.count, signed.at) == (True, 2, 2)  # the next line can wait
    journal.close()
    assert [finding.code for finding in setup.findings] == ["journal/unsigned-anchor"]
    assert anchor(setup).mac
    assert codes(setup) == []
    setup.findings.clear()
    setup.reopen().write(SessionStarted("s", at=4))
    assert setup.findings == []


def test_without_its_first_line_nothing_is_said_of_its_version(setup: JournalSetup) -> None:
    begin_as_before(setup)
    setup.journal.path_of("s").write_bytes(setup.lines()[1])
    assert codes(setup) == ["dropped"]


def test_a_journal_of_an_earlier_version_may_have_no_anchor(setup: JournalSetup) -> None:
    begin_as_before(setup)
    setup.anchors.delete("s")
    assert codes(setup) == ["no-anchor"]
    setup.reopen().write(SessionStarted("s"))


def test_the_anchor_of_a_journal_without_a_key_needs_no_mac(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    setup.write(*run())
    setup.journal.close()
    assert codes(setup) == ["no-key"]


RETENTION = Retention(keep_for=1, max_journals=100, max_gap=1, policy="p", digest="d")


def pruned(setup: JournalSetup) -> tuple[int, int]:
    result = prune(
        setup.folder,
        setup.anchors,
        RETENTION,
        now=10**9,
        before=10**9,
        hasher=Hasher(KEY),
        lock_session=MemoryStore(caps=CAPS).lock_session,
    )
    return len(result.deleted), len(result.kept)


def remove_anchor(setup: JournalSetup) -> None:
    setup.anchors.delete("s")


def lower_anchor(setup: JournalSetup) -> None:
    setup.anchors.put(cut(setup, 2))


@pytest.mark.parametrize("change", [remove_anchor, lower_anchor])
def test_retention_keeps_it(setup: JournalSetup, change: Callable[[JournalSetup], None]) -> None:
    change(setup)
    assert pruned(setup) == (0, 1)


def test_retention_finishes_what_a_killed_process_began(setup: JournalSetup) -> None:
    known = anchor(setup)
    end = (known.chain, known.count, known.hash, known.size)
    setup.anchors.add_note(Pruned("s", *end, 1, "p", "d"))
    setup.anchors.delete("s")
    assert codes(setup) == ["no-anchor", "pruned"]
    assert pruned(setup) == (1, 0)


def test_stores_and_exports_keep_the_mac(setup: JournalSetup, tmp_path: Path) -> None:
    known = anchor(setup)
    path = tmp_path / "s.db"
    SqliteStore(path, caps=CAPS).anchors.put(known)
    assert SqliteStore(path, caps=CAPS).anchors.get("s") == known
    exported = tmp_path / "anchors"
    exported.write_text("\n".join(anchor_lines([known])))
    assert read_anchors(exported) == [known]
