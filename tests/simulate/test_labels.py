"""Conflicting labels are found, at a cost linear in the file."""

from __future__ import annotations

import json
import re
import tracemalloc
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

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
