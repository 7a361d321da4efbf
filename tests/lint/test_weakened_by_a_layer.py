"""Settings of the whole policy that a layer weakens where the base leaves them at their default."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from policyguard.cli import main
from policyguard.lint.linter import lint_paths

RULE = "rules: {no: {tools: [rm], when: has(call.args.x)}}"


@pytest.mark.parametrize("setting", ["mode: observe", "on_internal_error: allow"])
@pytest.mark.parametrize(("base", "is_found"), [(RULE, True), ("", False)], ids=["rules", "none"])
def test_a_weak_setting_over_a_silent_base(
    tmp_path: Path, setting: str, base: str, is_found: bool
) -> None:
    (tmp_path / "base.yaml").write_text(
        f"policyguard: 1\nname: base\nextends: [loop-brake]\n{base}\n"
    )
    top = tmp_path / "top.yaml"
    top.write_text(f"policyguard: 1\nname: top\nextends: [base.yaml]\n{setting}\n")
    shown = CliRunner().invoke(main, ["lint", str(top)]).output
    assert ("lint/weakened-by-a-layer" in shown) is is_found
    assert (f"this weakens the entries of {tmp_path / 'base.yaml'}" in shown) is is_found


def test_a_base_may_use_names_that_only_a_later_layer_defines(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        "policyguard: 1\nname: base\n"
        "rules: {a: {tools: [x, $l], effect: block}, b: {tools: [x, $l], effect: block}}\n"
        "limits: {default: {timeout: $t, repeat: {max: $n}}}\n"
    )
    (tmp_path / "middle.yaml").write_text(
        "policyguard: 1\nname: middle\nextends: [base.yaml]\n"
        "rules: {a: {tools: [x], effect: block}, b: {tools: [$l, x], effect: block}}\n"
    )
    top = tmp_path / "top.yaml"
    top.write_text(
        "policyguard: 1\nname: top\nextends: [middle.yaml]\nparams: {t: 5s, n: 3}\n"
        "lists: {l: [q, r]}\nlimits: {default: {mode: observe}}\n"
    )
    found = lint_paths([top], select=["lint/weakened-by-a-layer"]).diagnostics
    base = tmp_path / "base.yaml"
    assert [(Path(one.span.file).name, one.message) for one in found] == [
        (
            "middle.yaml",
            f"this loosens `rules.a` of {base}: `tools` changes from `[x, q, r]` to `[x]`",
        ),
        ("top.yaml", f"this loosens `limits.default.repeat` of {base}: it no longer acts"),
        ("top.yaml", f"this loosens `limits.default.timeout` of {base}: it no longer acts"),
    ]
