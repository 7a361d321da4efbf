"""The shell commands of recorded runs: hardly one is refused, and none fails to be read."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from policyguard.compiler.build.selectors.call_readers import command_reader
from policyguard.model.event import Admitted
from policyguard.shell.plain import split_plain
from policyguard.shell.read_only import is_read_only
from policyguard.traces import Reader, Skipped, expand
from tests.shell.shell_cases import CORPORA, compile_patterns, read_case, shell_reader

TRACES = Path(
    os.environ.get("POLICYGUARD_TRACES", Path(__file__).parents[2] / ".." / "shared" / "traces")
)
pytestmark = pytest.mark.skipif(
    not TRACES.is_dir(), reason=f"no recorded traces at {TRACES} (POLICYGUARD_TRACES names them)"
)
FALSE_ALARMS_AT_MOST = 0.02


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the different commands of all runs that bash accepts."""
    read = command_reader(("command", "cmd", "script"))
    texts: set[str] = set()
    reader = Reader()
    for file in expand([TRACES]):
        for trace in reader.iter_files(file):
            for item in trace:
                if not isinstance(item, Skipped) and isinstance(item, Admitted):
                    texts.add(read(item.args or {}))
    texts.discard("")
    return _valid(sorted(texts), tmp_path_factory.mktemp("texts"))


def _valid(texts: list[str], folder: Path) -> list[str]:
    """Return the texts that bash accepts, each of which it reads without running it."""
    for number, text in enumerate(texts):
        (folder / str(number)).write_bytes(text.encode("utf-8", "replace"))
    loop = 'for text in *; do bash -n <"$text" 2>/dev/null && echo "$text"; done'
    done = subprocess.run(["sh", "-c", loop], cwd=folder, capture_output=True, check=False)
    return [texts[number] for number in sorted(map(int, done.stdout.split()))]


def test_nearly_all_commands_can_be_seen(commands: list[str]) -> None:
    reader = shell_reader()
    syntax = [text for text in commands if "syntax error" in reader.read(text).opaque]
    assert len(commands) >= 1_400
    assert len(syntax) <= 2, syntax


@pytest.mark.parametrize("name", CORPORA)
def test_false_alarms(name: str, commands: list[str]) -> None:
    """What is refused is listed in the corpus as rightly so, but for a few."""
    corpus = read_case(name)
    patterns = compile_patterns(*corpus["patterns"])
    refused = [text for text in commands if patterns.find(text) is not None]
    alarms = [text for text in refused if not any(word in text for word in corpus["recorded"])]
    assert len(alarms) <= len(commands) * FALSE_ALARMS_AT_MOST, alarms


def test_plain_commands_are_read_as_by_the_parser(commands: list[str]) -> None:
    """A line that begins with a newline takes the parser."""
    reader = shell_reader()
    assert sum(split_plain(text) is not None for text in commands) > len(commands) / 4
    for text in commands:
        assert is_read_only(text, reader) == is_read_only(f"\n{text}", reader), text


def test_a_third_changes_nothing(commands: list[str]) -> None:
    reader = shell_reader()
    assert sum(is_read_only(text, reader) for text in commands) > len(commands) / 3
