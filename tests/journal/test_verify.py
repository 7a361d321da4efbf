"""`verify` detects every change of a journal and explains it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policyguard.journal.anchors.export import anchor_lines, read_anchors
from policyguard.journal.chain import Chain, Hasher, read_key
from policyguard.journal.errors import AlteredError, JournalError
from policyguard.journal.findings import CODES
from policyguard.journal.folder import file_name
from policyguard.journal.format import encode
from policyguard.journal.verify import VerifyResult, verify
from policyguard.model.event import Event, SessionEnded, SessionStarted, TurnStarted
from policyguard.store.memory.store import MemoryStore
from policyguard.store.protocol import Anchor, Caps, Repaired
from policyguard.store.sqlite.store import SqliteAnchors, SqliteStore
from tests.examples import examples
from tests.journal.setup import CAPS, JournalSetup, run

Lines = list[bytes]


@pytest.fixture
def setup(tmp_path: Path) -> JournalSetup:
    created = JournalSetup(tmp_path)
    created.write(*run("s"), *run("t"))
    return created


def after(setup: JournalSetup, change: Callable[[Lines], Lines]) -> VerifyResult:
    """Return the result after changing the session's lines."""
    setup.journal.path_of("s").write_bytes(b"".join(change(setup.lines("s"))))
    return verify([setup.folder], anchors=setup.anchors)


def body(event: Event) -> str:
    """Return an event's JSON without its closing brace."""
    return encode(event)[:-1].decode()


def codes(result: VerifyResult) -> list[tuple[str, int | None]]:
    return [(finding.code.removeprefix("journal/"), finding.line) for finding in result.findings]


def forged(lines: Lines, at: int, **changes: object) -> Lines:
    """Return the lines with one changed and all from there on rehashed, without a key."""
    out = lines[:at]
    prev = json.loads(lines[at])["prev"]
    for line in lines[at:]:
        value = json.loads(line)
        if line is lines[at]:
            value |= changes
        chain = value.get("chain", "")
        for name in ("seq", "chain", "prev", "hash"):
            value.pop(name, None)
        writer = Chain(Hasher(), chain, len(out), prev)
        out.append(writer.seal(json.dumps(value)[:-1], masked=False))
        prev = writer.hash
    return out


def test_an_honest_journal_has_no_findings(setup: JournalSetup) -> None:
    result = verify([setup.folder], anchors=setup.anchors)
    assert (result.files, result.lines, result.findings) == (2, 20, ())
    assert not result.has_failed


def test_lines_beyond_the_anchor_are_reported_and_no_failure(setup: JournalSetup) -> None:
    setup.write(SessionStarted("s"), TurnStarted("s"), SessionStarted("s"), SessionStarted("s"))
    result = verify([setup.folder], anchors=setup.anchors)
    assert codes(result) == [("unanchored", 13)]
    assert not result.has_failed


def test_any_field_of_any_line_that_was_edited(setup: JournalSetup) -> None:
    lines = setup.lines("s")
    edits = 0
    for number, line in enumerate(lines):
        for name, value in json.loads(line).items():
            written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            before = f'"{name}":{written}'.encode()
            assert before in line
            for other in {b"null", b'"x"', b"1"} - {written.encode()}:
                changed = line.replace(before, f'"{name}":'.encode() + other, 1)
                edited = [*lines[:number], changed, *lines[number + 1 :]]
                result = after(setup, lambda _, edited=edited: edited)
                assert result.has_failed
                assert ("edited", number + 1) in codes(result), (number, name, codes(result))
                edits += 1
    assert edits > 200
    assert not after(setup, lambda _: lines).has_failed


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(lambda ls: [ls[0], *ls[2:]], [("dropped", 2)], id="a line dropped"),
        pytest.param(lambda ls: [ls[0], *ls[5:]], [("dropped", 2)], id="four lines dropped"),
        pytest.param(lambda ls: ls[1:], [("dropped", 1)], id="the first line dropped"),
        pytest.param(lambda ls: ls[:-1], [("cut-tail", 9)], id="the last line cut"),
        pytest.param(lambda ls: ls[:3], [("cut-tail", 3)], id="most lines cut"),
        pytest.param(lambda ls: [], [("cut-tail", None)], id="all lines cut"),
        pytest.param(lambda ls: [ls[0], ls[0], *ls[1:]], [("inserted", 2)], id="a line twice"),
        pytest.param(
            lambda ls: [ls[0], ls[0], *ls[1:5], b"no event\n", *ls[6:]],
            [("inserted", 2), ("edited", 7)],
            id="a line twice and a later one overwritten",
        ),
        pytest.param(lambda ls: [*ls, ls[4]], [("inserted", 11)], id="an old line at the end"),
        pytest.param(
            lambda ls: [*ls[:4], b'{"event":"turn_started","session":"s"}\n', *ls[4:]],
            [("inserted", 5)],
            id="a line of no chain put in",
        ),
        pytest.param(
            lambda ls: [*ls[:4], b"\n", *ls[4:]], [("inserted", 5)], id="an empty line put in"
        ),
        pytest.param(
            lambda ls: [*ls[:4], b"no event\n", *ls[5:]], [("edited", 5)], id="a line overwritten"
        ),
        pytest.param(
            lambda ls: [*ls[:4], b"no event\n", *ls[6:]],
            [("edited", 5), ("dropped", 6)],
            id="a line overwritten and the next dropped",
        ),
        pytest.param(
            lambda ls: [*ls[:3], ls[4], ls[3], *ls[5:]],
            [("reordered", 5)],
            id="two lines swapped",
        ),
        pytest.param(
            lambda ls: [ls[-1], *ls[:-1]],
            [("reordered", number) for number in range(2, 11)],
            id="the last line first",
        ),
        pytest.param(
            lambda ls: [ls[0], *ls[3:7], ls[1].replace(b"turn", b"torn"), *ls[8:]],
            [("dropped", 2), ("edited", 6)],
            id="several things at once",
        ),
        pytest.param(
            lambda ls: [ls[0], ls[1].replace(b"turn", b"torn"), *ls[2:5]],
            [("edited", 2), ("cut-tail", None)],
            id="edited and cut",
        ),
    ],
)
def test_each_change_is_explained(
    setup: JournalSetup, change: Callable[[Lines], Lines], expected: list[tuple[str, int | None]]
) -> None:
    result = after(setup, change)
    assert result.has_failed
    assert codes(result) == expected
    assert {finding.file for finding in result.findings} == {str(setup.journal.path_of("s"))}
    assert all(finding.help for finding in result.findings)


def test_an_inserted_line_with_a_valid_hash(setup: JournalSetup) -> None:
    """It is inserted between lines 4 and 5; the next line does not follow it."""
    lines = setup.lines("s")
    prev = json.loads(lines[3])["hash"]
    line = Chain(Hasher(), "", 4, prev).seal(body(TurnStarted("s")), masked=False)
    result = after(setup, lambda ls: [*ls[:4], line, *ls[4:]])
    assert result.has_failed
    assert codes(result)[0] == ("inserted", 6)


def test_a_line_replaced_and_rehashed(setup: JournalSetup) -> None:
    lines = setup.lines("s")
    replaced = forged(lines, 4, tokens=1)[4]
    result = after(setup, lambda ls: [*ls[:4], replaced, *ls[5:]])
    assert codes(result) == [("edited", 6)]
    assert "does not follow the previous line: one of the two was replaced" in str(result.findings)


def test_a_chain_rehashed_from_some_line_on(setup: JournalSetup) -> None:
    result = after(setup, lambda ls: forged(ls, 4, tokens=1))
    assert codes(result) == [("rewritten", 10)]


@pytest.mark.parametrize("changes", [{"session": "t"}, {"session": 5}])
def test_a_rehashed_chain_with_lines_of_another_session(
    setup: JournalSetup, changes: dict[str, object]
) -> None:
    """Without an anchor, only the line itself reveals it."""
    path = setup.journal.path_of("s")
    path.write_bytes(b"".join(forged(setup.lines("s"), 4, **changes)))
    assert verify([path]).has_failed


def test_a_rehashed_chain_that_counts_wrongly(setup: JournalSetup) -> None:
    path = setup.journal.path_of("s")
    lines = setup.lines("s")
    prev = json.loads(lines[8])["hash"]
    line = Chain(Hasher(), "", 20, prev).seal(body(SessionEnded("s")), masked=False)
    path.write_bytes(b"".join([*lines[:9], line]))
    assert codes(verify([path])) == [("dropped", 10)]


def test_a_new_chain_in_its_place(setup: JournalSetup, tmp_path: Path) -> None:
    other = JournalSetup(tmp_path / "other")
    other.write(*run("s"))
    result = after(setup, lambda _: other.lines("s"))
    assert codes(result) == [("foreign-chain", None)]


def test_the_chain_of_another_session_in_its_place(setup: JournalSetup) -> None:
    for change in (
        lambda _: setup.lines("t"),
        lambda ls: [line.replace(b'"session":"t"', b'"session":"s"') for line in setup.lines("t")],
    ):
        result = after(setup, change)
        assert result.has_failed
        assert {code for code, _ in codes(result)} <= {"foreign-chain", "edited"}
        setup.journal.path_of("s").write_bytes(b"".join(setup.lines("s")))


def test_lines_of_another_session_spliced_in(setup: JournalSetup) -> None:
    result = after(setup, lambda ls: [*ls[:5], *setup.lines("t")[5:7], *ls[5:]])
    assert codes(result) == [("foreign-chain", 6), ("foreign-chain", 7)]
    result = after(setup, lambda ls: [*ls[:5], *setup.lines("t")[5:]])
    assert ("foreign-chain", 6) in codes(result)


def test_a_file_under_the_name_of_another_session(setup: JournalSetup) -> None:
    setup.anchors.delete("s")
    result = after(setup, lambda _: setup.lines("t"))
    assert ("foreign-chain", 1) in codes(result)


def test_a_missing_file(setup: JournalSetup) -> None:
    setup.journal.path_of("s").unlink()
    result = verify([setup.folder], anchors=setup.anchors)
    assert codes(result) == [("missing-file", None)]
    assert "session 's' has 10 anchored lines, but no file" in result.findings[0].message
    assert not verify([setup.journal.path_of("t")], anchors=setup.anchors).has_failed
    assert not verify([setup.folder]).has_failed  # unnoticed without anchors


def test_a_journal_that_is_pruned_while_it_is_verified_is_not_missing(
    setup: JournalSetup, tmp_path: Path
) -> None:
    path = setup.journal.path_of("s")

    class Pruned(SqliteAnchors):
        """Deletes an anchor and its file just after reading the anchors."""

        def all(self) -> Iterator[Anchor]:
            found = list(super().all())
            self.delete("s")
            path.unlink()
            return iter(found)

    store = SqliteStore(tmp_path / "store.db", caps=CAPS)
    anchors = Pruned(store.anchors._database, None)  # the store's own anchors
    for anchor in setup.anchors.all():
        anchors.put(anchor)
    assert verify([setup.folder], anchors=anchors).findings == ()


def test_after_an_eviction_nothing_is_proven_without_an_anchor(setup: JournalSetup) -> None:
    """`s` was cut, and other files may be missing unnoticed."""
    few = MemoryStore(caps=Caps(constraints=1, grants=1, evidence=1, anchors=1)).anchors
    for anchor in setup.anchors.all():
        few.put(anchor)
    assert [anchor.session for anchor in few.all()] == ["t"]
    after(setup, lambda ls: ls[:4])
    result = verify([setup.folder], anchors=few)
    assert codes(result) == [("no-anchor", None), ("dropped-anchors", None)]
    assert result.findings[0].message == "none of 4 lines is anchored"
    assert result.has_failed
    message = "the store evicted the anchor of 1 session, beyond `bounds.journals`"
    assert result.findings[1].message.startswith(message)
    assert verify([setup.journal.path_of("s")], anchors=few).has_failed
    assert verify([setup.journal.path_of("t")], anchors=few).findings == ()
    setup.journal.path_of("s").unlink()
    assert codes(verify([setup.folder], anchors=few)) == [("dropped-anchors", None)]


def test_a_torn_last_line_is_no_failure(setup: JournalSetup) -> None:
    setup.write(SessionStarted("s"))
    result = after(setup, lambda ls: [*ls[:-1], ls[-1][:-20]])
    assert codes(result) == [("torn-line", 11)]
    assert not result.has_failed


@pytest.mark.parametrize(("content", "code"), [(b"", "empty"), (b'{"event"', "torn-line")])
def test_a_file_without_a_line_says_what_is_in_it(
    tmp_path: Path, content: bytes, code: str
) -> None:
    file = tmp_path / file_name("s")
    file.write_bytes(content)
    assert [found.code for found in verify([file]).findings] == [f"journal/{code}"]


@pytest.mark.parametrize("content", [b"", b"[" * 200_000, bytes(100_000), b'{"v":1}', b'{"event"'])
def test_a_file_without_a_line_is_a_journal_only_under_the_name_of_one(
    tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "s.jsonl"
    file.write_bytes(content)
    result = verify([file])
    assert codes(result) == [("no-chain", 1)]
    assert result.has_failed


@pytest.mark.parametrize("less", [1, 5, 200])
def test_an_anchored_line_was_cut_and_not_torn(setup: JournalSetup, less: int) -> None:
    """Opening refuses it, so `verify` does not say that opening repairs it."""
    result = after(setup, lambda ls: [*ls[:-1], ls[-1][:-less]])
    assert codes(result) == [("cut-tail", 9)]
    left = len(setup.lines("s")[-1])
    message = f"has 9 lines, but 10 were anchored; {left} bytes of one more"
    assert result.findings[0].message == message
    with pytest.raises(AlteredError):
        list(setup.journal.read_events("s"))


def test_a_line_that_only_the_latest_anchor_covers_was_cut_and_not_torn(
    setup: JournalSetup,
) -> None:
    """Not one that an export before it does not know."""
    known = list(setup.anchors.all())
    setup.write(*run("s"))
    lines = setup.lines("s")
    setup.journal.path_of("s").write_bytes(b"".join([*lines[:-1], lines[-1][:-5]]))
    result = verify([setup.folder], anchors=setup.anchors, exported=known)
    assert codes(result) == [("cut-tail", len(lines) - 1)]


def test_without_anchors_the_chain_itself_is_verified(setup: JournalSetup) -> None:
    setup.journal.path_of("t").unlink()
    path = setup.journal.path_of("s")
    assert codes(verify([path])) == []
    setup.anchors.delete("s")
    assert codes(verify([path], anchors=setup.anchors))[0][0] == "lost-anchor"
    path.write_bytes(b"".join(setup.lines("s")[:5]))
    assert not verify([path]).has_failed
    path.write_bytes(b"".join(setup.lines("s")[1:]))
    assert verify([path]).has_failed


def test_an_exported_anchor_reveals_a_rewritten_store(setup: JournalSetup, tmp_path: Path) -> None:
    exported = tmp_path / "anchors.jsonl"
    exported.write_text("\n".join(anchor_lines(setup.anchors.all())) + "\n")
    lines = forged(setup.lines("s"), 0, agent="other")
    path = setup.journal.path_of("s")
    path.write_bytes(b"".join(lines))
    last = json.loads(lines[-1])
    anchor = setup.anchors.get("s")
    assert anchor is not None
    setup.anchors.delete("s")
    setup.anchors.put(type(anchor)("s", anchor.chain, 10, last["hash"], path.stat().st_size))
    assert not verify([setup.folder], anchors=setup.anchors).has_failed
    known = read_anchors(exported)
    assert codes(verify([setup.folder], anchors=setup.anchors, exported=known)) == [
        ("rewritten", 10)
    ]
    path.unlink()
    setup.anchors.delete("s")
    assert codes(verify([setup.folder], anchors=setup.anchors, exported=known)) == [
        ("missing-file", None)
    ]


def test_a_continued_session_agrees_with_its_exported_anchor(setup: JournalSetup) -> None:
    known = list(setup.anchors.all())
    setup.write(*run("s"))
    assert codes(verify([setup.folder], anchors=setup.anchors, exported=known)) == []


@pytest.mark.parametrize("later_first", [False, True])
def test_no_later_anchor_replaces_an_exported_one(
    setup: JournalSetup, tmp_path: Path, *, later_first: bool
) -> None:
    """An attacker who rewrites journal and store also controls the next export."""
    before = list(anchor_lines(setup.anchors.all()))
    exported = tmp_path / "anchors.jsonl"

    def after_export() -> VerifyResult:
        now = list(anchor_lines(setup.anchors.all()))
        exported.write_text("\n".join(now + before if later_first else before + now))
        return verify([setup.folder], anchors=setup.anchors, exported=read_anchors(exported))

    path = setup.journal.path_of("s")
    lines = forged(setup.lines("s"), 3, tokens=1)
    path.write_bytes(b"".join(lines))
    anchor = setup.anchors.get("s")
    assert anchor is not None
    setup.anchors.delete("s")
    hash_ = json.loads(lines[-1])["hash"]
    setup.anchors.put(Anchor("s", anchor.chain, 10, hash_, path.stat().st_size))
    assert codes(after_export()) == [("rewritten", 10)]
    path.unlink()
    setup.anchors.delete("s")
    setup.restart()
    setup.write(*run("s")[:4], SessionEnded("s"))
    assert codes(after_export()) == [("foreign-chain", None)]


def test_anchors_of_many_exports(setup: JournalSetup) -> None:
    """All agree with a continued chain, and a change is reported once."""
    taken = [*setup.anchors.all()]
    for _ in range(3):
        setup.write(*run("s"), *run("t"))
        taken += setup.anchors.all()
    assert codes(verify([setup.folder], anchors=setup.anchors, exported=taken)) == []
    path, lines = setup.journal.path_of("s"), setup.lines("s")
    path.write_bytes(b"".join(lines[:5]))
    assert codes(verify([setup.folder], anchors=setup.anchors, exported=taken)) == [("cut-tail", 5)]
    path.write_bytes(b"".join(forged(lines, 12, tokens=1)))
    assert codes(verify([setup.folder], anchors=setup.anchors, exported=taken)) == [
        ("rewritten", 20)
    ]
    path.unlink()
    (missing,) = verify([setup.folder], anchors=setup.anchors, exported=taken).findings
    assert missing.message == "session 's' has 40 anchored lines, but no file"


def test_a_session_restarted_after_pruning(setup: JournalSetup) -> None:
    """An earlier export cannot tell it from a forgery; the help says what to do."""
    taken = list(setup.anchors.all())
    setup.anchors.delete("s")
    setup.journal.path_of("s").unlink()
    setup.restart()
    setup.write(*run("s"))
    assert codes(verify([setup.folder], anchors=setup.anchors)) == []
    (finding,) = verify([setup.folder], anchors=setup.anchors, exported=taken).findings
    assert "differs from a chain of session 's' of which 10 lines were anchored" in finding.message
    assert "if it was pruned and its session id used again" in finding.help


def test_with_a_key_nobody_else_can_forge_a_chain(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path, key=b"k" * 32)
    setup.write(*run("s"))
    path = setup.journal.path_of("s")
    assert codes(verify([path], key=b"k" * 32)) == []
    assert codes(verify([path])) == [("key", 1)]
    assert codes(verify([path], key=b"other")) == [("key", 1)]
    whole = setup.lines("s")
    value = json.loads(whole[0])
    genesis = Hasher().genesis("s", value["chain"])
    line = Chain(Hasher(), value["chain"], 0, genesis).seal(body(SessionStarted("s")), masked=False)
    path.write_bytes(line)
    assert codes(verify([path], key=b"k" * 32)) == [("no-key", 1)]
    path.write_bytes(b"".join(forged(whole, 4, tokens=1)))
    assert verify([path], key=b"k" * 32).has_failed


@pytest.mark.parametrize(
    "content", [b'{"event":"closed","session":"s"}\n', b"\x00\n", b"[1]\n", b'{"session":5}\n']
)
def test_a_file_that_is_not_a_journal(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "trace.jsonl").write_bytes(content)
    assert codes(verify([tmp_path])) == [("no-chain", 1)]


def test_a_journal_without_the_hash_of_its_first_line(setup: JournalSetup) -> None:
    """Its name, or an anchor of its session, shows that it was a journal."""
    path, copy = setup.journal.path_of("s"), setup.folder / "copy.jsonl"
    first = json.loads(setup.lines("s")[0])
    del first["hash"]
    path.write_bytes(b"".join([json.dumps(first).encode() + b"\n", *setup.lines("s")[1:]]))
    assert codes(verify([path])) == [("edited", 1)]
    path.rename(copy)
    assert codes(verify([copy], anchors=setup.anchors)) == [("edited", 1)]
    assert codes(verify([copy])) == [("no-chain", 1)]


def test_a_copy_under_another_name_is_verified_without_anchors(setup: JournalSetup) -> None:
    copy = setup.folder / "copy.jsonl"
    copy.write_bytes(b"".join(setup.lines("s")))
    assert verify([copy]) == VerifyResult(1, 10, ())


def test_lines_of_a_broken_journal_are_counted(setup: JournalSetup) -> None:
    result = after(setup, lambda ls: [ls[0], *ls[2:]])
    assert (codes(result), result.lines) == ([("dropped", 2)], 9 + 10)


def test_a_folder_that_is_not_there(setup: JournalSetup, tmp_path: Path) -> None:
    """Anchors show that there was one; without them it may be a mistyped path."""
    folder = tmp_path / "moved" / "journal"
    with pytest.raises(JournalError, match="does not exist"):
        verify([folder])
    assert codes(verify([folder], anchors=setup.anchors)) == [("missing-file", None)] * 2
    with pytest.raises(JournalError, match="does not exist"):
        verify([folder.with_name("journals")], anchors=setup.anchors)


def test_an_exported_note_of_a_repair_explains_no_missing_journal(setup: JournalSetup) -> None:
    known = list(setup.anchors.all())
    repaired = Repaired("s", known[0].chain, 1, known[0].count, 0, 5, is_keyed=False)
    setup.journal.path_of("s").unlink()
    setup.anchors.delete("s")
    result = verify([setup.folder], anchors=setup.anchors, exported=[*known, repaired])
    assert codes(result) == [("missing-file", None)]


def test_files_that_cannot_be_read(setup: JournalSetup) -> None:
    (setup.folder / "folder.jsonl").mkdir()
    (setup.folder / "gone.jsonl").symlink_to("nowhere")
    (setup.folder / "memory.jsonl").symlink_to("/proc/self/mem")  # fails even for root
    result = verify([setup.folder], anchors=setup.anchors)
    assert [code for code, _ in codes(result)] == ["unreadable"] * 3
    assert result.lines == 20


def test_findings_per_file_are_bounded(setup: JournalSetup) -> None:
    lines = [b'{"session":"s"}\n'] * 5000
    result = after(setup, lambda ls: [ls[0], *lines])
    assert len(result.findings) <= 102


def test_a_forged_distant_seq_costs_nothing(setup: JournalSetup) -> None:
    line = Chain(Hasher(), "", 10**17, "0" * 64).seal(body(SessionEnded("s")), masked=False)
    result = after(setup, lambda ls: [*ls, line])
    assert codes(result) == [("dropped", 11)]


@settings(
    max_examples=examples(300, 8),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_no_changed_byte_goes_unnoticed(setup: JournalSetup, data: st.DataObject) -> None:
    path = setup.journal.path_of("s")
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    kind = data.draw(st.sampled_from(["change", "remove", "insert"]))
    byte = data.draw(st.binary(min_size=1, max_size=1).filter(lambda b: b != whole[at : at + 1]))
    rest = whole[at + 1 :] if kind != "insert" else whole[at:]
    path.write_bytes(whole[:at] + (b"" if kind == "remove" else byte) + rest)
    try:
        assert verify([path], anchors=setup.anchors).has_failed
    finally:
        path.write_bytes(whole)


@settings(
    max_examples=examples(300, 8),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(order=st.lists(st.integers(0, 9), max_size=14))
def test_no_other_choice_or_order_of_lines_goes_unnoticed(
    setup: JournalSetup, order: list[int]
) -> None:
    path = setup.journal.path_of("s")
    lines = setup.lines("s")
    path.write_bytes(b"".join(lines[number] for number in order))
    try:
        assert verify([path], anchors=setup.anchors).has_failed is (order != list(range(10)))
    finally:
        path.write_bytes(b"".join(lines))


def test_each_code_is_found_somewhere_above() -> None:
    tests = Path(__file__).read_text(encoding="utf-8")
    missing = [code for code in CODES if f'"{code.removeprefix("journal/")}"' not in tests]
    # See test_anchor_mac, test_recovery, test_retention, the command's tests, the store's of hosts.
    assert missing == [
        "journal/forged-anchor",
        "journal/unsigned-anchor",
        "journal/store-behind",
        "journal/store-edited",
        "journal/adopted",
        "journal/repaired",
        "journal/handed-over",
        "journal/set-aside",
        "journal/pruned",
    ]


@pytest.mark.parametrize(
    ("size", "is_key"), [(15, False), (16, True), (65_536, True), (65_537, False)]
)
def test_a_key_has_16_to_65536_bytes(tmp_path: Path, size: int, is_key: bool) -> None:
    file = tmp_path / "key"
    file.write_bytes(bytes(size))
    if is_key:
        assert read_key(file) == bytes(size)
    else:
        with pytest.raises(JournalError, match="but a key has 16 to 65,536"):
            read_key(file)


def test_a_journal_that_is_named_twice_is_verified_once(setup: JournalSetup) -> None:
    once = after(setup, lambda lines: lines[1:])
    file = setup.journal.path_of("s")
    assert verify([file, setup.folder, file, setup.folder], anchors=setup.anchors) == once
    assert (once.files, len(once.findings)) == (2, 1)
