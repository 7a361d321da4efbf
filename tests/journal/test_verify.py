"""`verify` finds whatever was done to a journal, and says what it was."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policyguard.journal.anchor_export import anchor_lines, read_anchors
from policyguard.journal.chain import Chain, Hasher
from policyguard.journal.errors import AlteredError
from policyguard.journal.findings import CODES
from policyguard.journal.format import encode
from policyguard.journal.verify import VerifyResult, verify
from policyguard.model.event import Closed, Event, Started, TurnStarted
from policyguard.store.memory.store import MemoryStore
from policyguard.store.protocol import Anchor, Caps
from policyguard.store.sqlite.store import SqliteAnchors, SqliteStore
from tests.journal.world import CAPS, World, run

Lines = list[bytes]


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write(*run("s"), *run("t"))
    return made


def after(world: World, change: Callable[[Lines], Lines]) -> VerifyResult:
    """What is found once the session's lines have been changed."""
    world.journal.path_of("s").write_bytes(b"".join(change(world.lines("s"))))
    return verify([world.folder], anchors=world.anchors)


def body(event: Event) -> str:
    """An event's JSON as a chain takes it."""
    return encode(event)[:-1].decode()


def told(result: VerifyResult) -> list[tuple[str, int | None]]:
    return [(one.code.removeprefix("journal/"), one.line) for one in result.findings]


def forged(lines: Lines, at: int, **changes: object) -> Lines:
    """The lines with one changed, and all from there on hashed anew, as who has no key can."""
    out = lines[:at]
    prev = json.loads(lines[at])["prev"]
    for line in lines[at:]:
        value = json.loads(line)
        if line is lines[at]:
            value |= changes
        chain = value.get("chain", "")
        for name in ("seq", "chain", "prev", "hash"):
            value.pop(name, None)
        anew = Chain(Hasher(), chain, len(out), prev)
        out.append(anew.seal(json.dumps(value)[:-1], masked=False))
        prev = anew.hash
    return out


def test_an_honest_journal_has_nothing_to_tell(world: World) -> None:
    result = verify([world.folder], anchors=world.anchors)
    assert (result.files, result.lines, result.findings) == (2, 20, ())
    assert not result.has_failed


def test_lines_beyond_the_anchor_are_told_and_no_failure(world: World) -> None:
    world.write(Started("s"), TurnStarted("s"), Started("s"), Started("s"))
    result = verify([world.folder], anchors=world.anchors)
    assert told(result) == [("unanchored", 13)]
    assert not result.has_failed


def test_any_field_of_any_line_that_was_edited(world: World) -> None:
    lines = world.lines("s")
    edits = 0
    for number, line in enumerate(lines):
        for name, value in json.loads(line).items():
            written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            before = f'"{name}":{written}'.encode()
            assert before in line
            for other in {b"null", b'"x"', b"1"} - {written.encode()}:
                changed = line.replace(before, f'"{name}":'.encode() + other, 1)
                edited = [*lines[:number], changed, *lines[number + 1 :]]
                result = after(world, lambda _, edited=edited: edited)
                assert result.has_failed
                assert ("edited", number + 1) in told(result), (number, name, told(result))
                edits += 1
    assert edits > 200
    assert not after(world, lambda _: lines).has_failed


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
def test_what_was_done_is_told(
    world: World, change: Callable[[Lines], Lines], expected: list[tuple[str, int | None]]
) -> None:
    result = after(world, change)
    assert result.has_failed
    assert told(result) == expected
    assert {one.file for one in result.findings} == {str(world.journal.path_of("s"))}
    assert all(one.help for one in result.findings)


def test_an_inserted_line_that_was_hashed_well(world: World) -> None:
    """Between lines 4 and 5, with a place and a link of its own: the next does not follow it."""
    lines = world.lines("s")
    prev = json.loads(lines[3])["hash"]
    made = Chain(Hasher(), "", 4, prev).seal(body(TurnStarted("s")), masked=False)
    result = after(world, lambda ls: [*ls[:4], made, *ls[4:]])
    assert result.has_failed
    assert told(result)[0] == ("inserted", 6)


def test_a_line_replaced_and_hashed_anew(world: World) -> None:
    lines = world.lines("s")
    replaced = forged(lines, 4, tokens=1)[4]
    result = after(world, lambda ls: [*ls[:4], replaced, *ls[5:]])
    assert told(result) == [("edited", 6)]
    assert "does not follow the line before: one of the two was replaced" in str(result.findings)


def test_a_chain_hashed_anew_from_some_line_on(world: World) -> None:
    result = after(world, lambda ls: forged(ls, 4, tokens=1))
    assert told(result) == [("rewritten", 10)]


@pytest.mark.parametrize("changes", [{"session": "t"}, {"session": 5}])
def test_a_chain_hashed_anew_with_lines_of_another_session(
    world: World, changes: dict[str, object]
) -> None:
    """Nothing but the line itself gives it away, where there is no anchor."""
    path = world.journal.path_of("s")
    path.write_bytes(b"".join(forged(world.lines("s"), 4, **changes)))
    assert verify([path]).has_failed


def test_a_chain_hashed_anew_that_counts_wrongly(world: World) -> None:
    path = world.journal.path_of("s")
    lines = world.lines("s")
    prev = json.loads(lines[8])["hash"]
    made = Chain(Hasher(), "", 20, prev).seal(body(Closed("s")), masked=False)
    path.write_bytes(b"".join([*lines[:9], made]))
    assert told(verify([path])) == [("dropped", 10)]


def test_a_chain_made_anew_from_the_start(world: World, tmp_path: Path) -> None:
    other = World(tmp_path / "other")
    other.write(*run("s"))
    result = after(world, lambda _: other.lines("s"))
    assert told(result) == [("foreign-chain", None)]


def test_the_chain_of_another_session_in_its_place(world: World) -> None:
    for change in (
        lambda _: world.lines("t"),
        lambda ls: [line.replace(b'"session":"t"', b'"session":"s"') for line in world.lines("t")],
    ):
        result = after(world, change)
        assert result.has_failed
        assert {code for code, _ in told(result)} <= {"foreign-chain", "edited"}
        world.journal.path_of("s").write_bytes(b"".join(world.lines("s")))


def test_lines_of_another_session_spliced_in(world: World) -> None:
    result = after(world, lambda ls: [*ls[:5], *world.lines("t")[5:7], *ls[5:]])
    assert told(result) == [("foreign-chain", 6), ("foreign-chain", 7)]
    result = after(world, lambda ls: [*ls[:5], *world.lines("t")[5:]])
    assert ("foreign-chain", 6) in told(result)


def test_a_file_under_the_name_of_another_session(world: World) -> None:
    world.anchors.delete("s")
    result = after(world, lambda _: world.lines("t"))
    assert ("foreign-chain", 1) in told(result)


def test_a_missing_file(world: World) -> None:
    world.journal.path_of("s").unlink()
    result = verify([world.folder], anchors=world.anchors)
    assert told(result) == [("missing-file", None)]
    assert "session 's' has 10 anchored lines, and no file" in result.findings[0].message
    assert not verify([world.journal.path_of("t")], anchors=world.anchors).has_failed
    assert not verify([world.folder]).has_failed  # nobody knows of it without anchors


def test_a_journal_that_is_pruned_while_it_is_verified_is_not_missing(
    world: World, tmp_path: Path
) -> None:
    path = world.journal.path_of("s")

    class Pruned(SqliteAnchors):
        """Its anchors are read just before one is forgotten, and its file removed."""

        def all(self) -> Iterator[Anchor]:
            found = list(super().all())
            self.delete("s")
            path.unlink()
            return iter(found)

    store = SqliteStore(tmp_path / "store.db", caps=CAPS)
    anchors = Pruned(store.anchors._database, None)  # the store's own anchors, on the same file
    for anchor in world.anchors.all():
        anchors.put(anchor)
    assert verify([world.folder], anchors=anchors).findings == ()


def test_where_anchors_had_to_go_nothing_is_proven_without_one(world: World) -> None:
    """`s` was cut, and perhaps more were taken away: nobody knows."""
    few = MemoryStore(caps=Caps(constraints=1, evidence=1, anchors=1)).anchors
    for anchor in world.anchors.all():
        few.put(anchor)
    assert [anchor.session for anchor in few.all()] == ["t"]
    after(world, lambda ls: ls[:4])
    result = verify([world.folder], anchors=few)
    assert told(result) == [("no-anchor", None), ("dropped-anchors", None)]
    assert result.has_failed
    message = "the store has dropped the anchor of 1 session, beyond `bounds.journals`"
    assert result.findings[1].message.startswith(message)
    assert verify([world.journal.path_of("s")], anchors=few).has_failed
    assert verify([world.journal.path_of("t")], anchors=few).findings == ()
    world.journal.path_of("s").unlink()
    assert told(verify([world.folder], anchors=few)) == [("dropped-anchors", None)]


def test_a_torn_last_line_is_no_failure(world: World) -> None:
    world.write(Started("s"))
    result = after(world, lambda ls: [*ls[:-1], ls[-1][:-20]])
    assert told(result) == [("torn-line", 11)]
    assert not result.has_failed


@pytest.mark.parametrize("less", [1, 5, 200])
def test_an_anchored_line_was_cut_and_not_torn(world: World, less: int) -> None:
    """Opening refuses it, so `verify` does not say that opening would repair it."""
    result = after(world, lambda ls: [*ls[:-1], ls[-1][:-less]])
    assert told(result) == [("cut-tail", 9)]
    left = len(world.lines("s")[-1])
    message = f"has 9 lines where 10 were anchored, and {left} bytes of one more"
    assert result.findings[0].message == message
    with pytest.raises(AlteredError):
        list(world.journal.read_events("s"))


def test_without_anchors_the_chain_itself_is_verified(world: World) -> None:
    world.journal.path_of("t").unlink()
    path = world.journal.path_of("s")
    assert told(verify([path])) == []
    world.anchors.delete("s")
    assert told(verify([path], anchors=world.anchors)) == [("no-anchor", None)]
    path.write_bytes(b"".join(world.lines("s")[:5]))
    assert not verify([path]).has_failed
    path.write_bytes(b"".join(world.lines("s")[1:]))
    assert verify([path]).has_failed


def test_an_exported_anchor_stands_against_whoever_writes_the_store(
    world: World, tmp_path: Path
) -> None:
    exported = tmp_path / "anchors.jsonl"
    exported.write_text("\n".join(anchor_lines(world.anchors.all())) + "\n")
    lines = forged(world.lines("s"), 0, agent="other")
    path = world.journal.path_of("s")
    path.write_bytes(b"".join(lines))
    last = json.loads(lines[-1])
    anchor = world.anchors.get("s")
    assert anchor is not None
    world.anchors.delete("s")
    world.anchors.put(type(anchor)("s", anchor.chain, 10, last["hash"], path.stat().st_size))
    assert not verify([world.folder], anchors=world.anchors).has_failed
    known = read_anchors(exported)
    assert told(verify([world.folder], anchors=world.anchors, exported=known)) == [
        ("rewritten", 10)
    ]
    path.unlink()
    world.anchors.delete("s")
    assert told(verify([world.folder], anchors=world.anchors, exported=known)) == [
        ("missing-file", None)
    ]


def test_a_session_that_went_on_still_agrees_with_its_exported_anchor(world: World) -> None:
    known = list(world.anchors.all())
    world.write(*run("s"))
    assert told(verify([world.folder], anchors=world.anchors, exported=known)) == []


@pytest.mark.parametrize("later_first", [False, True])
def test_no_later_anchor_takes_the_place_of_an_exported_one(
    world: World, tmp_path: Path, *, later_first: bool
) -> None:
    """Who rewrites journal and store is also who the next export comes from."""
    before = list(anchor_lines(world.anchors.all()))
    exported = tmp_path / "anchors.jsonl"

    def after_export() -> VerifyResult:
        now = list(anchor_lines(world.anchors.all()))
        exported.write_text("\n".join(now + before if later_first else before + now))
        return verify([world.folder], anchors=world.anchors, exported=read_anchors(exported))

    path = world.journal.path_of("s")
    lines = forged(world.lines("s"), 3, tokens=1)
    path.write_bytes(b"".join(lines))
    anchor = world.anchors.get("s")
    assert anchor is not None
    world.anchors.delete("s")
    hash_ = json.loads(lines[-1])["hash"]
    world.anchors.put(Anchor("s", anchor.chain, 10, hash_, path.stat().st_size))
    assert told(after_export()) == [("rewritten", 10)]
    path.unlink()
    world.anchors.delete("s")
    world.restart()
    world.write(*run("s")[:4], Closed("s"))
    assert told(after_export()) == [("foreign-chain", None)]


def test_anchors_of_many_exports_are_one_story(world: World) -> None:
    """Of a chain that went on all hold, and what was done to it is said once."""
    taken = [*world.anchors.all()]
    for _ in range(3):
        world.write(*run("s"), *run("t"))
        taken += world.anchors.all()
    assert told(verify([world.folder], anchors=world.anchors, exported=taken)) == []
    path, lines = world.journal.path_of("s"), world.lines("s")
    path.write_bytes(b"".join(lines[:5]))
    assert told(verify([world.folder], anchors=world.anchors, exported=taken)) == [("cut-tail", 5)]
    path.write_bytes(b"".join(forged(lines, 12, tokens=1)))
    assert told(verify([world.folder], anchors=world.anchors, exported=taken)) == [
        ("rewritten", 20)
    ]
    path.unlink()
    (missing,) = verify([world.folder], anchors=world.anchors, exported=taken).findings
    assert missing.message == "session 's' has 40 anchored lines, and no file"


def test_a_session_begun_anew_after_pruning_says_so(world: World) -> None:
    """An export from before cannot tell it from one that was made anew, and says what to do."""
    taken = list(world.anchors.all())
    world.anchors.delete("s")
    world.journal.path_of("s").unlink()
    world.restart()
    world.write(*run("s"))
    assert told(verify([world.folder], anchors=world.anchors)) == []
    (one,) = verify([world.folder], anchors=world.anchors, exported=taken).findings
    assert "another chain than one of session 's', of which 10 lines were anchored" in one.message
    assert "where it was pruned and the session's id used again" in one.help


def test_with_a_key_nobody_else_can_make_a_chain(tmp_path: Path) -> None:
    world = World(tmp_path, key=b"k" * 32)
    world.write(*run("s"))
    path = world.journal.path_of("s")
    assert told(verify([path], key=b"k" * 32)) == []
    assert told(verify([path])) == [("key", 1)]
    assert told(verify([path], key=b"other")) == [("key", 1)]
    whole = world.lines("s")
    value = json.loads(whole[0])
    genesis = Hasher().genesis("s", value["chain"])
    line = Chain(Hasher(), value["chain"], 0, genesis).seal(body(Started("s")), masked=False)
    path.write_bytes(line)
    assert told(verify([path], key=b"k" * 32)) == [("no-key", 1)]
    path.write_bytes(b"".join(forged(whole, 4, tokens=1)))
    assert verify([path], key=b"k" * 32).has_failed


@pytest.mark.parametrize(
    "content", [b'{"event":"closed","session":"s"}\n', b"\x00\n", b"[1]\n", b'{"session":5}\n']
)
def test_a_file_that_is_no_journal(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "trace.jsonl").write_bytes(content)
    assert told(verify([tmp_path])) == [("no-chain", 1)]


def test_files_that_cannot_be_read(world: World) -> None:
    (world.folder / "folder.jsonl").mkdir()
    (world.folder / "gone.jsonl").symlink_to("nowhere")
    result = verify([world.folder], anchors=world.anchors)
    assert [code for code, _ in told(result)] == ["unreadable", "unreadable"]
    assert result.lines == 20


def test_a_file_that_is_all_wrong_is_not_told_line_by_line(world: World) -> None:
    lines = [b'{"session":"s"}\n'] * 5000
    result = after(world, lambda ls: [ls[0], *lines])
    assert len(result.findings) <= 102


def test_a_forged_place_far_away_costs_nothing(world: World) -> None:
    made = Chain(Hasher(), "", 10**17, "0" * 64).seal(body(Closed("s")), masked=False)
    result = after(world, lambda ls: [*ls, made])
    assert told(result) == [("dropped", 11)]


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_change_of_any_byte_goes_unseen(world: World, data: st.DataObject) -> None:
    path = world.journal.path_of("s")
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    kind = data.draw(st.sampled_from(["change", "remove", "insert"]))
    byte = data.draw(st.binary(min_size=1, max_size=1).filter(lambda b: b != whole[at : at + 1]))
    rest = whole[at + 1 :] if kind != "insert" else whole[at:]
    path.write_bytes(whole[:at] + (b"" if kind == "remove" else byte) + rest)
    try:
        assert verify([path], anchors=world.anchors).has_failed
    finally:
        path.write_bytes(whole)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(order=st.lists(st.integers(0, 9), max_size=14))
def test_no_other_choice_or_order_of_lines_goes_unseen(world: World, order: list[int]) -> None:
    path = world.journal.path_of("s")
    lines = world.lines("s")
    path.write_bytes(b"".join(lines[number] for number in order))
    try:
        assert verify([path], anchors=world.anchors).has_failed is (order != list(range(10)))
    finally:
        path.write_bytes(b"".join(lines))


def test_each_code_is_found_somewhere_above() -> None:
    tests = Path(__file__).read_text(encoding="utf-8")
    missing = [code for code in CODES if f'"{code.removeprefix("journal/")}"' not in tests]
    assert missing == ["journal/empty"]  # see test_recovery: a death before the first line
