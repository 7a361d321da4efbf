"""The table of docs/journal.md, by performing each kind of tampering and verifying."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from policyguard import Guard
from policyguard.journal.anchors.export import anchor_lines, read_anchors
from policyguard.journal.chain import Chain, Hasher, read_key
from policyguard.journal.store_state import StoreState
from policyguard.journal.verify import verify
from policyguard.store.errors import StoreError
from policyguard.store.sqlite.store import SqliteStore

DOCUMENT = Path(__file__).parents[2] / "docs" / "journal.md"
POLICY = """policyguard: 1
name: tampering
journal: {args: keep, results: keep}
budgets: {tot: {calls: 100, per: global}}
learn: {corroborate: 2, scope: project}
signatures: [{id: broken, pattern: "boom", blame: agent, examples: {match: [boom], no_match: [ok]}}]
"""
Change = Callable[[Path], object]


def journal(folder: Path, session: str = "alpha") -> Path:
    (path,) = (folder / "journal").glob(f"{session}-*.jsonl")
    return path


def read(folder: Path) -> list[bytes]:
    return journal(folder).read_bytes().splitlines(keepends=True)


def write(folder: Path, lines: list[bytes]) -> None:
    journal(folder).write_bytes(b"".join(lines))


def edit(pattern: bytes, replacement: bytes, number: int = 3) -> Change:
    def change(folder: Path) -> None:
        lines = read(folder)
        edited = re.sub(pattern, replacement, lines[number], count=1)
        assert edited != lines[number]
        lines[number] = edited
        write(folder, lines)

    return change


def rearrange(change_lines: Callable[[list[bytes]], list[bytes]]) -> Change:
    return lambda folder: write(folder, change_lines(read(folder)))


def cut_bytes(count: int) -> Change:
    return lambda folder: journal(folder).write_bytes(journal(folder).read_bytes()[:-count])


def sql(*statements: str) -> Change:
    def change(folder: Path) -> None:
        connection = sqlite3.connect(folder / "s.db")
        for statement in statements:
            assert connection.execute(statement).rowcount
        connection.commit()
        connection.close()

    return change


def both(*changes: Change) -> Change:
    return lambda folder: [change(folder) for change in changes]


def swap(folder: Path) -> None:
    first, second = journal(folder), journal(folder, "beta")
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)


def rehash(lines: list[bytes], chain_id: str = "") -> list[bytes]:
    """Return lines in a chain that fits, which anyone can compute without a key."""
    chain_id = chain_id or json.loads(lines[0])["chain"]
    chain = Chain(Hasher(), chain_id, 0, Hasher().genesis("alpha", chain_id))
    chain._key_id = json.loads(lines[0]).get("key_id", "")
    events = (line[: line.rindex(b',"seq":')].decode() for line in lines)
    return [chain.seal(event, masked=False) for event in events]


def forge(chain_id: str = "") -> Change:
    return rearrange(
        lambda lines: rehash([line.replace(b"/etc/3", b"/ETC/3") for line in lines], chain_id)
    )


def append(folder: Path) -> None:
    lines = read(folder)
    seal = json.loads(lines[-1])["hash"]
    forged = Chain(Hasher(), "", len(lines), seal).seal('{"event":"turn","session":"alpha"', False)
    write(folder, [*lines, forged])


def forge_without_key_id(folder: Path) -> None:
    lines = read(folder)
    lines = [line.replace(b"/etc/3", b"/ETC/3") for line in lines]
    write(folder, rehash([re.sub(rb'"key_id":"[0-9a-f]+",', b"", lines[0]), *lines[1:]]))


def adjust_anchor(folder: Path) -> None:
    lines = read(folder)
    first, last = json.loads(lines[0]), json.loads(lines[-1])
    size = sum(map(len, lines))
    sql(
        f"UPDATE anchors SET chain = '{first['chain']}', count = {len(lines)}, size = {size}, "  # noqa: S608
        f"hash = '{last['hash']}' WHERE session = 'alpha'"
    )(folder)


def through_policyguard(folder: Path) -> None:
    """Delete a ban as our own code does, which computes the digest."""
    store = SqliteStore(folder / "s.db", caps=None)
    for record in store.constraints.list():
        store.constraints.delete(record.id)


def remove_store(folder: Path) -> None:
    for path in folder.glob("s.db*"):
        path.unlink()


def put_back(folder: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name("earlier"), folder)


DELETE_ANCHOR = sql("DELETE FROM anchors WHERE session = 'alpha'")
KINDS: Mapping[str, tuple[Change, ...]] = {
    "a line edited": (
        edit(rb'"event":"', b'"event":"b'),
        edit(rb'"at":(\d+)\d,', rb'"at":\g<1>x,'),
        edit(rb'"at":\d', b'"at":9'),
        edit(rb"read_file", b"read_fike"),
        edit(rb"/etc/", b"/ett/"),
        edit(rb"content-", b"contemt-", 2),
        edit(rb'"call":"c', b'"call":"d'),
        edit(rb'"alpha"', b'"alphb"'),
        edit(rb'"seq":3', b'"seq":4'),
        edit(rb'"prev":"[0-9a-f]{8}', b'"prev":"00000000'),
        edit(rb'"hash":"[0-9a-f]{8}', b'"hash":"00000000'),
        edit(rb"boom", b"bomm", -1),
        edit(rb'"tool":', b'"tool": '),
        rearrange(lambda lines: [line.replace(b"\n", b"\r\n") for line in lines]),
    ),
    "lines removed, added, repeated, moved or cut off": (
        rearrange(lambda lines: lines[1:]),
        rearrange(lambda lines: lines[:5] + lines[6:]),
        rearrange(lambda lines: lines[:-1]),
        rearrange(lambda lines: lines[:-5]),
        cut_bytes(40),
        cut_bytes(1),
        rearrange(lambda lines: [*lines[:5], lines[4], *lines[5:]]),
        rearrange(lambda lines: [*lines[:4], lines[5], lines[4], *lines[6:]]),
    ),
    "a file swapped, removed, emptied, renamed or copied": (
        swap,
        lambda folder: journal(folder).unlink(),
        lambda folder: journal(folder).write_bytes(b""),
        lambda folder: shutil.rmtree(folder / "journal"),
        lambda folder: shutil.copy(journal(folder), folder / "journal" / f"zeta-{'0' * 32}.jsonl"),
        lambda folder: journal(folder).rename(folder / "journal" / "x.bak"),
    ),
    "lines added at the end, their hashes computed": (append,),
    "a chain computed anew": (forge(), forge("ab" * 16)),
    "a chain computed anew, and its anchor": (
        both(forge(), adjust_anchor),
        both(forge("ab" * 16), adjust_anchor),
        both(forge_without_key_id, adjust_anchor),
    ),
    "lines cut off, and the anchor lowered": (
        both(rearrange(lambda lines: lines[:-5]), adjust_anchor),
        both(
            rearrange(lambda lines: lines[:-5]),
            adjust_anchor,
            sql("UPDATE anchors SET mac = '' WHERE session = 'alpha'"),
        ),
    ),
    "lines cut off, and the anchor removed": (
        both(rearrange(lambda lines: lines[:-5]), DELETE_ANCHOR),
    ),
    "an anchor removed": (DELETE_ANCHOR, sql("DELETE FROM anchors")),
    "an anchor changed": (
        sql("UPDATE anchors SET hash = substr(hash, 2) || 'x' WHERE session = 'alpha'"),
        sql("UPDATE anchors SET count = count + 1 WHERE session = 'alpha'"),
    ),
    "a journal removed with its anchor": (
        both(lambda folder: journal(folder).unlink(), DELETE_ANCHOR),
    ),
    "rows of budgets, constraints, grants, marks, notes or the store's key changed": (
        sql("UPDATE purses SET account = replace(cast(account AS text), '[', '[1')"),
        sql("DELETE FROM purses"),
        sql("DELETE FROM constraints"),
        sql("UPDATE constraints SET state = 'revoked', revoked_by = 'ann', version = version + 1"),
        sql("UPDATE constraints SET payload = replace(payload, 'boom', 'bomm')"),
        sql(
            "INSERT INTO constraints SELECT 'k0', scope, key || 'x', state, updated_at, payload, "
            "revoked_by, version + 1, used + 1 FROM constraints LIMIT 1"
        ),
        sql(
            "INSERT INTO marks VALUES ('agent\x1fa\x1fseen', 'agent\x1fa', 'seen', 'active', 1, "
            "x'90', '', '', 1, 1)"
        ),
        sql("UPDATE meta SET value = randomblob(32) WHERE name = 'key'"),
    ),
    "the same, and their digest": (through_policyguard,),
    "evidence changed": (sql("DELETE FROM evidence"),),
    "the store removed": (remove_store,),
    "all files put back as they were earlier": (put_back,),
}


class World(NamedTuple):
    """A folder with a store and journals, their key and exported anchors, and copies to change."""

    folder: Path
    key: Path | None
    exported: Path

    def is_found(self, change: Change, *, exported: bool) -> bool:
        folder = self.folder.with_name("changed")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder, folder)
        change(folder)
        store = SqliteStore(folder / "s.db", caps=None, read_only=True)
        try:
            return verify(
                [folder / "journal"],
                anchors=store.anchors,
                exported=read_anchors(self.exported) if exported else (),
                key=read_key(self.key) if self.key else None,
                store=StoreState(store.path, store.count_lost(), store.find_edited()),
            ).has_failed
        except StoreError:  # nothing can be verified, which the command reports
            return True


def build(root: Path, *, keyed: bool) -> World:
    root.mkdir(mode=0o700)
    folder, key = root / "store", root / "key"
    folder.mkdir(mode=0o700)
    (folder / "p.yaml").write_text(POLICY)
    key.write_bytes(b"k" * 32)

    def run(begin: int) -> None:
        options = {"journal_key": key} if keyed else {}
        with Guard.load(folder / "p.yaml", store=folder / "s.db", **options) as guard:
            for name in ("alpha", "beta", "gamma"):
                session = guard.session(name, project="p")
                for number in range(begin, begin + 8):
                    decision = session.check("read_file", {"path": f"/etc/{number}"})
                    session.record(decision, result=f"content-{name}-{number}")
                for tool in ("run", f"run_{name}_{begin}"):
                    failed = session.check(tool, {"n": 1})
                    if failed:
                        session.record(failed, error="boom")

    run(0)
    shutil.copytree(folder, root / "earlier")
    run(10)
    exported = root / "anchors"
    anchors = SqliteStore(folder / "s.db", caps=None, read_only=True).anchors
    exported.write_text("\n".join(anchor_lines(anchors.all())))
    return World(folder, key if keyed else None, exported)


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, World]:
    root = tmp_path_factory.mktemp("tampering")
    return build(root / "open", keyed=False), build(root / "keyed", keyed=True)


def table() -> Iterator[tuple[str, tuple[bool, bool, bool]]]:
    """Yield the kinds of tampering of the document, and what finds them."""
    _, _, text = DOCUMENT.read_text().partition("\n| tampering |")
    for line in text.partition("\n\n")[0].splitlines()[2:]:
        kind, *marks = (cell.strip() for cell in line.strip("|").split("|"))
        assert set(marks) <= {"found", "no"}, line
        no_key, key, exported = (mark == "found" for mark in marks)
        yield kind, (no_key, key, exported)


def test_the_table_has_each_kind() -> None:
    assert [kind for kind, _ in table()] == list(KINDS)
    assert sum(map(len, KINDS.values())) >= 47


def test_nothing_is_found_without_tampering(worlds: tuple[World, World]) -> None:
    for world in worlds:
        assert not world.is_found(lambda _: None, exported=True)


@pytest.mark.parametrize(("kind", "expected"), list(table()))
def test_what_finds_it(
    worlds: tuple[World, World], kind: str, expected: tuple[bool, bool, bool]
) -> None:
    for change in KINDS[kind]:
        without_key, with_key = worlds
        found = (
            without_key.is_found(change, exported=False),
            with_key.is_found(change, exported=False),
            without_key.is_found(change, exported=True),
        )
        assert found == expected, change
        if any(expected):
            assert with_key.is_found(change, exported=True)
