"""Cases: the files in `input/`, read in order, give the lines of `expected.jsonl`.

A line is an event, `{"format": …, "file": …}` at the start of a file, or `{"skipped": …}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policyguard.journal.format import encode
from policyguard.traces import Reader, Skipped, expand

CASES = sorted((Path(__file__).parent / "cases").iterdir())


def read_case(case: Path) -> Iterator[dict[str, Any]]:
    reader = Reader()
    for path in expand([case / "input"]):
        trace = reader.read(path)
        yield {"format": trace.format, "file": str(path.relative_to(case / "input"))}
        for item in trace:
            if isinstance(item, Skipped):
                assert item.file == str(path)
                reason = item.reason.replace(f"{case / 'input'}/", "")
                yield {"skipped": reason, **({"line": item.line} if item.line else {})}
            else:
                yield json.loads(encode(item))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Path) -> None:
    lines = (case / "expected.jsonl").read_text(encoding="utf-8").splitlines()
    assert list(read_case(case)) == [json.loads(line) for line in lines]
