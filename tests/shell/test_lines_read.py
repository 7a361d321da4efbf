"""Fields of a line: as bash splits it where it is known, and else unknown."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard.shell.command_line import MANY
from policyguard.shell.script.variables.lines_read import split_line
from tests.examples import examples

BASH = shutil.which("bash")
LINES = st.text("ab:, \t/.-", max_size=12)
SEPARATORS = st.sampled_from([" \t\n", "", ":", ",", " ", "\t", "\n", " :", ":,", "\t\n"])


@pytest.mark.skipif(BASH is None, reason="needs bash")
@settings(max_examples=examples(80, 3000), deadline=None)
@given(LINES, SEPARATORS, st.integers(1, 4))
def test_bash_splits_the_line_alike(line: str, separators: str, count: int) -> None:
    names = " ".join(f"f{number}" for number in range(count))
    shown = " ".join(f'"$f{number}"' for number in range(count))
    text = f"IFS=$2 read -r {names} <<< \"$1\"; printf '<%s>' {shown}"
    ran = subprocess.run(
        [str(BASH), "-c", text, "bash", line, separators], capture_output=True, check=True
    )
    expected = ran.stdout.decode()[1:-1].split("><")
    found = split_line(line, separators, count)
    assert len(found) == count
    assert found == [MANY] * count or found == expected


@pytest.mark.parametrize(
    ("line", "separators", "fields"),
    [
        (" a  b c ", " \t\n", ["a", "b c"]),
        ("a", " \t\n", ["a", ""]),
        ("a b", "", ["a b", ""]),
        ("a:b", ":", ["a", "b"]),
        ("a b:c", ":", ["a b", "c"]),
        ("a::b", ":", [MANY, MANY]),
        ("a:", ":", [MANY, MANY]),
        ("a b", ":,", [MANY, MANY]),
        ("a", MANY, [MANY, MANY]),
    ],
)
def test_two_fields(line: str, separators: str, fields: list[str]) -> None:
    assert split_line(line, separators, 2) == fields
