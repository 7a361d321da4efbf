"""Settings of the whole policy that a layer weakens where the base leaves them at their default."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from policyguard.cli import main

RULE = "rules: {no: {tools: [rm], when: has(call.args.x)}}"


@pytest.mark.parametrize("setting", ["mode: observe", "on_internal_error: allow"])
@pytest.mark.parametrize(("base", "is_found"), [(RULE, True), ("", False)], ids=["rules", "none"])
def test_a_weak_setting_over_a_silent_base(
    tmp_path: Path, setting: str, base: str, is_found: bool
) -> None:
    (tmp_path / "base.yaml").write_text(f"policyguard: 1\nname: base\nextends: [core]\n{base}\n")
    top = tmp_path / "top.yaml"
    top.write_text(f"policyguard: 1\nname: top\nextends: [base.yaml]\n{setting}\n")
    shown = CliRunner().invoke(main, ["lint", str(top)]).output
    assert ("lint/weakened-by-a-layer" in shown) is is_found
    assert (f"this weakens the entries of {tmp_path / 'base.yaml'}" in shown) is is_found
