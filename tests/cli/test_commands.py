"""The commands are loaded when they are asked for, and each is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from policyguard import cli
from policyguard.cli import main

FOLDER = Path(cli.__file__).parent


def test_every_command_is_a_file_and_known() -> None:
    context = click.Context(main)
    names = main.list_commands(context)
    for name in names:
        command = main.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert command.help
    written = {file.stem for file in FOLDER.glob("*.py") if "@click." in file.read_text()}
    assert set(names) == written - {"__init__"}
    assert main.get_command(context, "cli") is None


@pytest.mark.parametrize("heavy", ["rich", "jsonschema", "policyguard.simulate"])
def test_one_command_does_not_load_what_others_need(heavy: str) -> None:
    code = f"""
import sys
from policyguard.cli import main
try:
    main(["explain", "yaml/encoding"])
finally:
    assert {heavy!r} not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
