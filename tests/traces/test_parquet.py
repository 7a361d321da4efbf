"""Recordings in Parquet, and rows selected by `--where`."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from policyguard.cli import main
from policyguard.model.event import Admitted, Completed, SessionEnded, SessionStarted
from policyguard.traces import Reader, Skipped, TraceError
from policyguard.traces.containers.parquet import Rows, parse_columns
from policyguard.traces.containers.parquet_rows import find_groups, select_rows, with_types
from policyguard.traces.containers.row_filter import (
    COMPARE,
    AllOf,
    AnyOf,
    Comparison,
    Condition,
    Not,
    OneOf,
    partitions_of,
    simplify,
)
from policyguard.traces.where import parse_condition
from tests.simulate.recording import failed, lines, read, write

arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
from pyarrow import parquet  # noqa: E402 - see above


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def ok(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def recording(folder: Path, sessions: int = 40, calls: int = 4) -> Path:
    runs: list[Iterable[str]] = [
        lines(
            f"s{n}",
            [read(f"/{n}/{i}", sha256(f"{n}/{i}".encode()).hexdigest()) for i in range(calls)]
            + [failed("run", "boom", n=n)] * (n % 3),
            success=n % 2 == 0,
            agent=f"a{n // 10}",
            project="p",
        )
        for n in range(sessions)
    ]
    runs.append(lines("parent", [read("/a")] * 2, success=True, agent="a9"))
    return write(folder / "runs.jsonl", *runs)


def convert(source: Path, target: Path) -> Path:
    ok("traces", "convert", source, "--to", "parquet", "-o", target)
    return target


def simulate(*arguments: object) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(ok("simulate", *arguments, "--format", "json"))
    for name in ("created_at", "elapsed_s"):
        del report[name]
    return report


def without_places(value: Any) -> Any:
    """A report without the names and lines of files."""
    if isinstance(value, dict):
        return {
            k: without_places(v) for k, v in value.items() if k not in ("file", "line", "formats")
        }
    if isinstance(value, list):
        found = [*map(without_places, value)]
        return sorted(found, key=repr)  # where places decide, the order differs
    return value


def test_a_replay_of_parquet_is_that_of_the_events(tmp_path: Path) -> None:
    source = recording(tmp_path)
    target = convert(source, tmp_path / "runs.parquet")
    assert target.stat().st_size < source.stat().st_size / 3
    one, two = simulate(source), simulate(target)
    assert without_places(one) == without_places(two)
    assert one["traces"]["sessions"] == 41
    assert simulate(target, "--workers", 2) == two


def test_sub_agents_stand_beside_their_parents(tmp_path: Path) -> None:
    runs = [
        json.loads(line)
        for name, parent in (("p1", ""), ("c1", "p1"), ("p2", ""), ("c2", "c1"))
        for line in lines(name, [read("/a"), read("/b")], agent=name, parent=parent)
    ]
    # The events of all four by turns, as they happened.
    source = tmp_path / "t.jsonl"
    order = [e for k in range(7) for e in runs[k::7]]
    source.write_text("".join(json.dumps(event) + "\n" for event in order))
    target = convert(source, tmp_path / "t.parquet")
    rows = parquet.read_table(target).to_pylist()
    families = [{"p1", "c1", "c2"}, {"p2"}]
    found = [{row["session"] for row in rows if row["agent"] == agent} for agent in ("p1", "p2")]
    assert found == families
    changes = sum(one["agent"] != two["agent"] for one, two in pairwise(rows))
    assert changes == 1
    assert without_places(simulate(source)) == without_places(simulate(target))
    some = simulate(target, "--where", 'agent == "p1"')
    assert some["traces"]["sessions"] == 3


def test_only_the_row_groups_that_are_needed_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("policyguard.traces.writers.parquet._GROUP_BYTES", 100_000)
    target = convert(recording(tmp_path, 400, 30), tmp_path / "runs.parquet")
    assert parquet.ParquetFile(target).metadata.num_row_groups > 15

    def count(where: str) -> tuple[int, int]:
        read = 0

        def add(size: int) -> None:
            nonlocal read
            read += size

        rows = Rows(parse_condition(where), count=add)
        items = [*Reader(rows=rows).read(target)]
        return sum(isinstance(item, SessionStarted) for item in items), read

    everything, size = count("true")
    assert everything == 401
    some, part = count('agent == "a7"')
    assert (some, part < size / 3) == (10, True), (part, size)
    result = run("traces", "stats", target, "--where", 'agent == "a7"')
    assert (
        f"read {part:,} bytes of Parquet; the files have {target.stat().st_size:,}" in result.stderr
    )


def test_folders_are_columns(tmp_path: Path) -> None:
    for day in ("2026-01-01", "2026-01-02", "2026-02-01"):
        for name in ("parquet", "jsonl"):
            folder = tmp_path / "lake" / f"date={day}" / "agent=a%20b"
            folder.mkdir(parents=True, exist_ok=True)
            source = write(folder / f"{name}.jsonl", lines(f"{name}-{day}", [read("/a")]))
            if name == "parquet":
                convert(source, source.with_suffix(".parquet"))
                source.unlink()

    def sessions(where: str) -> int:
        found: int = simulate(tmp_path / "lake", "--where", where)["traces"]["sessions"]
        return found

    assert sessions('date >= "2026-01-02" && date < "2026-02-01"') == 2
    assert sessions('agent == "a b"') == 6
    assert sessions('date in ["2026-01-01", "2026-02-01"] || false') == 4
    assert sessions('!(date != timestamp("2026-01-01"))') == 2
    report = simulate(tmp_path / "lake", "--where", 'date == "2026-01-01" && event != "x"')
    assert report["traces"]["sessions"] == 1
    assert "no folder of this file names; convert it" in report["traces"]["skips"][0]["reason"]
    assert run("simulate", tmp_path / "lake", "--where", 'date == "1999-01-01"').exit_code == 2


@pytest.mark.slow
def test_suggest_reads_parquet(tmp_path: Path) -> None:
    runs = [
        lines(
            f"s{n}",
            [failed("run", "boom", n=1)] * (3 + n % 7),
            success=n % 7 < 3,
            agent=f"a{n % 2}",
        )
        for n in range(120)
    ]
    source = write(tmp_path / "runs.jsonl", *runs)
    target = convert(source, tmp_path / "runs.parquet")

    def suggest(*arguments: object) -> dict[str, Any]:
        found = run("suggest", *arguments, "--max-harm", "0.1", "--format", "json")
        report: dict[str, Any] = json.loads(found.stdout)
        return report

    assert suggest(target)["sessions"] == suggest(source)["sessions"] == 120
    assert suggest(target, "--where", 'agent == "a1"')["sessions"] == 60


SCHEMA = {
    "run": ["r1", "r1", "r2", "r2"],
    "name": ["bash", "read", "bash", "bash"],
    "input": ['{"command": "ls"}', '{"path": "/a"}', "free text", None],
    "output": ["a b", None, "c", "d"],
    "problem": [None, "not found", "", None],
    "time": [datetime(2026, 1, 1, 12, minute, 5, 7, UTC) for minute in range(4)],
    "cost": [1.5, 2.5, 3.5, 4.5],
}
COLUMNS = "session=run,tool=name,args=input,result=output,error=problem,at=time"


def test_columns_of_another_schema(tmp_path: Path) -> None:
    file = tmp_path / "theirs.parquet"
    parquet.write_table(arrow.table(SCHEMA), file)
    items = [*Reader(rows=Rows(columns=parse_columns(COLUMNS))).read(file)]
    started = [item.session for item in items if isinstance(item, SessionStarted)]
    calls = [item for item in items if isinstance(item, Admitted)]
    results = [item for item in items if isinstance(item, Completed)]
    assert started == ["r1", "r2"]
    assert [(call.tool, call.args) for call in calls] == [
        ("bash", {"command": "ls"}),
        ("read", {"path": "/a"}),
        ("bash", {"text": "free text"}),
        ("bash", {}),
    ]
    assert [one.ok for one in results] == [True, False, True, True]
    assert results[1].error == "not found"
    assert len({(call.session, call.call) for call in calls}) == 4
    assert calls[0].at == 1_767_268_805_000_007_000
    rows = Rows(parse_condition("cost > 2 && cost < 4.0"), parse_columns(COLUMNS))
    assert sum(isinstance(item, Admitted) for item in Reader(rows=rows).read(file)) == 2
    assert "sessions" in ok("traces", "stats", file, "--columns", COLUMNS)


def test_columns_with_structs_and_their_own_names(tmp_path: Path) -> None:
    table = arrow.table(
        {
            "session": ["a", "a"],
            "tool": ["x", None],
            "args": [{"n": 1, "on": None}, {"n": 2, "on": True}],
            "at": [5, 6],
            "success": [None, True],
            "ok": [True, None],
        }
    )
    file = tmp_path / "t.parquet"
    parquet.write_table(table, file)
    items = [*Reader().read(file)]
    (call,) = [item for item in items if isinstance(item, Admitted)]
    assert (call.args, call.at) == ({"n": 1, "on": None}, 5)
    (ended,) = [item for item in items if isinstance(item, SessionEnded)]
    assert ended.success is True


def skips(file: Path, rows: Rows) -> list[str]:
    return [item.reason for item in Reader(rows=rows).read(file) if isinstance(item, Skipped)]


@pytest.mark.parametrize(
    ("columns", "where", "reason"),
    [
        ("", "", "Parquet without a column for `session`"),
        ("session=run", "", "Parquet without a column for `session` and one for `tool`"),
        ("session=run,tool=nam", "", "has no column `nam` for `tool`; it has run, name"),
        (COLUMNS, "price > 2", "has no column `price` for --where; it has run, name"),
        (COLUMNS, 'cost > "x"', "its column `cost` is of type double, which is not compared"),
    ],
)
def test_what_does_not_fit_is_said(tmp_path: Path, columns: str, where: str, reason: str) -> None:
    file = tmp_path / "theirs.parquet"
    parquet.write_table(arrow.table(SCHEMA), file)
    rows = Rows(parse_condition(where) if where else True, parse_columns(columns))
    (found,) = skips(file, rows)
    assert reason in found


def test_damaged_parquet_is_skipped(tmp_path: Path) -> None:
    target = convert(recording(tmp_path), tmp_path / "runs.parquet")
    data = target.read_bytes()
    half = len(data) // 2
    for number, content in enumerate(
        (
            data[:100],
            data[:-20],
            b"PAR1" + b"\0" * 200,
            data[:half] + b"\xff" * 50 + data[half + 50 :],
        )
    ):
        file = tmp_path / f"{number}.parquet"
        file.write_bytes(content)
        assert skips(file, Rows()), number


BOMB = """
import resource, sys
from pathlib import Path
from policyguard.traces import Reader, Skipped
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
reasons = [item.reason for item in Reader().read(Path(sys.argv[1])) if isinstance(item, Skipped)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, *reasons)
"""


@pytest.mark.parametrize("is_repeated", [True, False])
def test_a_small_file_with_large_rows_takes_little_memory(
    tmp_path: Path, is_repeated: bool
) -> None:
    line = b'{"event":"started","session":"' + b"x" * 1_000_000 + b'"}'
    if is_repeated:
        indices = arrow.array([0] * 20_000, arrow.int32())
        lines_ = arrow.DictionaryArray.from_arrays(indices, arrow.array([line]))
    else:
        lines_ = arrow.array([line] * 300)
    file = tmp_path / "bomb.parquet"
    table = arrow.table({"session": ["s"] * len(lines_), "line": lines_})
    parquet.write_table(table, file, compression="zstd", use_dictionary=is_repeated)
    assert file.stat().st_size < 40_000
    result = subprocess.run(
        [sys.executable, "-c", BOMB, str(file)], capture_output=True, text=True, check=True
    )
    kilobytes, _, reasons = result.stdout.partition(" ")
    assert int(kilobytes) < 250_000
    assert "expands to more than" in reasons or "too large after decompression" in reasons


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = convert(recording(tmp_path), tmp_path / "runs.parquet")
    for name in ("pyarrow", "pyarrow.dataset"):
        monkeypatch.setitem(sys.modules, name, None)
    assert skips(target, Rows()) == [
        "Parquet needs the package pyarrow: pip install 'policyguard-engine[lake]'"
    ]
    monkeypatch.delitem(sys.modules, "policyguard.traces.writers.parquet", raising=False)
    result = run("traces", "convert", target, "--to", "parquet", "-o", tmp_path / "x.parquet")
    assert (result.exit_code, "[lake]" in result.output) == (2, True)
    assert not (tmp_path / "x.parquet").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "column 1: the expression is empty"),
        ("a ==", "--where, column"),
        ("a.b == 1", "--where, column 1: only columns compared with values"),
        ("a == b", "--where, column 6: a column is compared with a text"),
        ("size(a) > 1", "only columns compared"),
        ("a in b", "only columns compared"),
        ("a + 1 == 2", "only columns compared"),
        ("a == timestamp('x')", "no time such as"),
        ("a.exists(x, x == 1)", "only columns compared"),
        ("(" * 30_000 + "a" + ")" * 30_000, "--where, column"),
    ],
)
def test_conditions_that_cannot_be_used_are_explained(text: str, says: str) -> None:
    with pytest.raises(TraceError, match="--where") as caught:
        parse_condition(text)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "known", "left"),
    [
        ("a == 1", {"a": "1"}, True),
        ("1 < a", {"a": "2"}, True),
        ("a >= 2.5", {"a": "2"}, False),
        ("a == -1", {"a": "-1"}, True),
        ("a", {"a": "true"}, True),
        ("!a", {"a": "True"}, False),
        ("a == 1", {"a": "x"}, False),
        ("a != 1", {"a": "x"}, True),
        ("a > timestamp('2026-01-01T00:00:00Z')", {"a": "2026-01-02"}, True),
        ("a == 1 && b == 2", {"a": "1"}, parse_condition("true && b == 2")),
        ("a == 1 && b == 2", {"a": "2"}, False),
        ("a == 1 || b == 2", {"a": "1"}, True),
        ("a in ['x', 'y']", {"a": "y"}, True),
        ("a in [1, 2]", {"a": "3"}, False),
    ],
)
def test_what_folders_decide(text: str, known: dict[str, str], left: Condition) -> None:
    found = simplify(parse_condition(text), known)
    assert found == (left if isinstance(left, bool) else simplify(left, {}))


def test_values_of_folders(tmp_path: Path) -> None:
    assert partitions_of(Path("x/date=2026-01-01/a=b=c/=z/e=/f.parquet")) == {
        "date": "2026-01-01",
        "a": "b=c",
        "e": "",
    }


@pytest.mark.parametrize("text", ["x", "what=a", "session=", "session"])
def test_columns_that_cannot_be_read_are_explained(text: str) -> None:
    with pytest.raises(TraceError, match="is not FIELD=COLUMN; fields: session, tool"):
        parse_columns(text)


VALUES = st.one_of(st.none(), st.integers(0, 4))
COMPARISONS = st.one_of(
    st.builds(
        Comparison,
        st.sampled_from(["a", "b"]),
        st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
        st.integers(-1, 5),
    ),
    st.builds(
        OneOf, st.sampled_from(["a", "b"]), st.lists(st.integers(0, 4), max_size=3).map(tuple)
    ),
    st.booleans(),
)
CONDITIONS = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(AllOf, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(AnyOf, st.lists(inner, min_size=1, max_size=3).map(tuple)),
    ),
    max_leaves=8,
)


def holds(condition: Condition, row: dict[str, int | None]) -> bool | None:
    """Whether a row meets a condition; None where a null leaves it open."""
    match condition:
        case Comparison(column, operator, value):
            found = row[column]
            return None if found is None else COMPARE[operator](found, value)
        case OneOf(column, values):
            return None if row[column] is None else row[column] in values
        case Not(inner):
            known = holds(inner, row)
            return None if known is None else not known
        case AllOf(conditions):
            each = [holds(one, row) for one in conditions]
            return False if False in each else None if None in each else True
        case AnyOf(conditions):
            each = [holds(one, row) for one in conditions]
            return True if True in each else None if None in each else False
        case bool():
            return condition


@given(
    rows=st.lists(st.fixed_dictionaries({"a": VALUES, "b": VALUES}), min_size=1, max_size=12),
    condition=CONDITIONS,
    kind=st.sampled_from(["int64", "dictionary", "double"]),
)
def test_rows_are_those_that_meet_the_condition(
    rows: list[dict[str, int | None]], condition: Condition, kind: str
) -> None:
    plain = arrow.float64() if kind == "double" else arrow.int64()
    arrays = {column: arrow.array([row[column] for row in rows], plain) for column in "ab"}
    if kind == "dictionary":
        arrays = {column: array.dictionary_encode() for column, array in arrays.items()}
    table = arrow.table(arrays)
    file = io.BytesIO()
    parquet.write_table(table, file, row_group_size=3)
    opened = parquet.ParquetFile(file)
    typed = with_types(condition, opened.schema_arrow)
    found: list[dict[str, int | None]] = []
    for group in find_groups(opened.metadata, typed):
        for batch in opened.iter_batches(row_groups=[group]):
            found += select_rows(batch, typed).to_pylist()
    assert found == [row for row in rows if holds(condition, row)]
    left = simplify(condition, {})
    assert [row for row in rows if holds(left, row)] == found
