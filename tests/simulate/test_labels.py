"""Conflicting labels are found, at a cost linear in the file."""

from __future__ import annotations

import json
import re
import sys
import tracemalloc
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard.simulate import LabelError, Labels
from policyguard.simulate.labels import Label, is_same_file

_PATHS = st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map("/".join)
_LABELS = st.builds(
    Label,
    success=st.sampled_from([True, True, True, False, None]),
    session=st.sampled_from(["s", "t", None]),
    file=_PATHS,
) | st.builds(Label, success=st.booleans(), session=st.sampled_from(["s", "t"]))


def contradict(one: Label, other: Label) -> bool:
    files = one.file is None or other.file is None or is_same_file(one.file, other.file)
    return files and one.session == other.session and one.success is not other.success


@given(st.lists(_LABELS, max_size=8))
def test_labels_conflict_if_they_may_match_the_same_session(labels: list[Label]) -> None:
    with TemporaryDirectory() as folder:
        labels_file = Path(folder) / "labels.jsonl"
        fields = ("session", "file", "success")
        labels_file.write_text(
            "".join(json.dumps({f: getattr(one, f) for f in fields}) + "\n" for one in labels)
        )
        try:
            assert len(Labels.read(labels_file)) == len(set(labels))
        except LabelError as error:
            later, earlier = map(int, re.findall(r"labels\.jsonl:(\d+)", str(error)))
            assert earlier < later
            assert contradict(labels[earlier - 1], labels[later - 1])
        else:
            assert not any(contradict(one, other) for one, other in combinations(labels, 2))


def test_the_cost_of_a_long_path_is_linear(tmp_path: Path) -> None:
    labels_file = tmp_path / "labels.jsonl"
    path = "/".join("ab" * 3_000)
    labels_file.write_text(json.dumps({"session": "s", "file": path, "success": True}) + "\n")
    tracemalloc.start()
    assert len(Labels.read(labels_file)) == 1
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 200 * len(path)


ROWS = [("a", True, None), ("b", False, "runs/x.jsonl"), ("7", None, None)]


def _write_csv(path: Path) -> Path:
    path = path.with_suffix(".csv")
    path.write_text(
        "\ufeffsession,success,file,note\na,true,,x\nb,0,runs/x.jsonl,y\n7,,,\n", "utf-8"
    )
    return path


def _write_parquet(path: Path) -> Path:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    path = path.with_suffix(".parquet")
    columns = dict(zip(("session", "success", "file"), zip(*ROWS, strict=True), strict=True))
    parquet.write_table(arrow.table({name: list(values) for name, values in columns.items()}), path)
    return path


@pytest.mark.parametrize("write", [_write_csv, _write_parquet])
def test_a_table_has_the_labels_of_the_lines(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    lines = tmp_path / "labels.jsonl"
    named = [dict(zip(("session", "success", "file"), row, strict=True)) for row in ROWS]
    lines.write_text("\n".join(json.dumps(row) for row in named))
    assert Labels.read(write(tmp_path / "labels")).digest == Labels.read(lines).digest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("session,success\na,maybe\n", r"labels\.csv:2: `success` is `maybe`"),
        ("session,success\n,true\n", r"labels\.csv:2: a label needs"),
        (
            "run,success\na,true\n",
            r"needs a column `success`, and one `session`.* has run, success",
        ),
        ("session,outcome\na,true\n", "needs a column `success`"),
        ("", "needs a column"),
        ('session,success\n"a\n', "no CSV"),
        ("session,success\na,true\na,false\n", r"labels\.csv:3: conflicts with .*:2"),
    ],
)
def test_a_bad_table_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(text)
    with pytest.raises(LabelError, match=message):
        Labels.read(path)


def test_a_bad_row_of_parquet_is_refused_with_its_number(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    path = tmp_path / "labels.parquet"
    parquet.write_table(arrow.table({"session": ["a", "a"], "success": [True, False]}), path)
    with pytest.raises(LabelError, match=r"labels\.parquet:2: conflicts with .*:1"):
        Labels.read(path)


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    path = tmp_path / "labels.parquet"
    path.write_bytes(b"PAR1 not")
    with pytest.raises(LabelError, match="no Parquet"):
        Labels.read(path)


def test_labels_in_parquet_name_the_package_that_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(LabelError, match=r"labels\.parquet: Parquet needs the package pyarrow"):
        Labels.read(tmp_path / "labels.parquet")
