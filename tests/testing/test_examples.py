"""The tests beside the example policies: in the form that is read here, of policies yet to come.

`POLICYGUARD_EXAMPLES` is the folder that they stand in.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from policyguard.cli import main
from policyguard.engines.yaml_source import parse
from policyguard.engines.yaml_tree import to_plain
from policyguard.testing import schema
from policyguard.testing.suite_reader import read_suite
from tests.examples import some
from tests.testing.suites import ROOT

FOLDER = Path(os.environ.get("POLICYGUARD_EXAMPLES", ROOT.parent / "shared" / "example-policies"))
FILES = sorted((FOLDER / "tests").glob("*.tests.yaml"))
UNSUPPORTED = {"schema/unsupported", "cel/unsupported"}

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"no example policies in {FOLDER} (POLICYGUARD_EXAMPLES)"
)


def test_there_are_some() -> None:
    assert len(FILES) >= 9


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name.partition(".")[0])
def test_the_schema_accepts_it(file: Path) -> None:
    parsed = parse(file.read_bytes(), str(file))
    assert parsed.root is not None
    assert schema.checker().validate(to_plain(parsed.root)) == []


@pytest.mark.parametrize("file", some(FILES, 3), ids=lambda file: file.name.partition(".")[0])
def test_unsupported_keys_are_errors(file: Path) -> None:
    suite, diagnostics = read_suite(file)
    if suite is not None:
        pytest.skip("its policy is supported by now")
    codes = {found.code for found in diagnostics}
    assert codes & UNSUPPORTED
    # There are no other errors, except that the pack it extends may not exist yet.
    assert codes <= UNSUPPORTED | {"load/not-found"}
    result = CliRunner().invoke(main, ["test", str(file)], catch_exceptions=False)
    assert result.exit_code == 2
    assert "not implemented yet" in result.stdout
