"""Which files of a folder are taken for policies, and for policy tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard.lint.discovery import find_policies
from policyguard.lint.linter import lint_paths
from policyguard.testing.discovery import has_tests_keys

LOADS = [
    "policyguard: 1\nname: x\n",
    '"policyguard": 1\nname: x\n',
    "'policyguard': 1\nname: x\n",
    "{policyguard: 1, name: x}\n",
    '{"policyguard": 1, "name": "x"}\n',
    "# ours\n---\n{\n  name: x,\n  policyguard: 1\n}\n",
    "policyguard : 1\nname: x\n",
    "? policyguard\n: 1\nname: x\n",
    "\ufeffpolicyguard: 1\nname: x\n",
    "\ufeff# ours\npolicyguard: 1\nname: x\n",
    "  policyguard: 1\n  name: x\n",
    "  name: x\n  policyguard: 1\n",
    "name: x\r\n'policyguard': 1\r\n",
    "name: x\rpolicyguard: 1\r",
]


@pytest.mark.parametrize("text", LOADS)
def test_what_loads_is_not_passed_over(text: str, tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(text)
    assert find_policies([tmp_path]) == [file]
    assert not [found for found in lint_paths([tmp_path]).diagnostics if found.severity == "error"]


BROKEN = [
    (b"policyguard: 1\nname: [\n", "yaml/"),
    (b'"policyguard": 1\nname: [\n', "yaml/"),
    (b"policyguard : 1\n\tname: x\n", "yaml/"),
    (b"\tpolicyguard: 1\n\tname: x\n", "yaml/"),
    (b"  policyguard: 1\n  name: [\n", "yaml/"),
    (b"{policyguard: 1, name: x\n", "yaml/"),
    (b"{\n  'policyguard': 1,\n  name: [\n", "yaml/"),
    (b"\xef\xbb\xbfpolicyguard: 1\nname: [\n", "yaml/"),
    ("policyguard: 1\nname: x\n".encode("utf-16"), "yaml/encoding"),
    (b"'policyguard': 1\nname: \xff\n", "yaml/encoding"),
    (b"policygaurd: 1\nname: x\n", "schema/"),
    (b"polciyguard: '1'\nrules: {}\n", "schema/"),
    (b"PolicyGuard: 1\nname: x\n", "schema/"),
    (b"policy-guard: 1\nextends: [core]\n", "schema/"),
    (b"{policygard: 1, name: x}\n", "schema/"),
]


@pytest.mark.parametrize(("data", "code"), BROKEN)
def test_what_looks_like_a_policy_is_reported(data: bytes, code: str, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_bytes(data)
    found = [one for one in lint_paths([tmp_path]).diagnostics if one.severity == "error"]
    assert found
    assert found[0].code.startswith(code)


OTHERS = [
    "services:\n  policyguard:\n    image: policyguard:1\n",
    "services:\n  policyguard: 1\n  name: x\n",
    "on: push\njobs: {a: {steps: [{run: policyguard lint}]}}\n",
    "{{- if .policyguard }}\nservices:\n  policyguard: 1\n{{- end }}\n",
    "- policyguard: 1\n",
    "text: |\n  policyguard: 1\n  name: x\n",
    "a: 1\n---\nb: policyguard\n",
    "minReplicas: 1\nname: x\n",
    "policyguards-version: 1\n",
    "policygaurd: 1\nimage: x\n",
    "policygaurd: yes\nname: x\n",
    "deep: {policygaurd: 1}\nname: x\n",
    "",
]


@pytest.mark.parametrize("text", OTHERS)
def test_files_of_others_are_left_alone(text: str, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(text)
    mine = tmp_path / "mine.yaml"
    mine.write_text(LOADS[0])
    assert find_policies([tmp_path]) == [mine]


def test_what_does_not_look_like_a_policy_is_not_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.yaml").write_text(LOADS[0])
    (tmp_path / "other.yaml").write_text("kind: Deployment\nname: x\nspec: {minReplicas: 1}\n")
    monkeypatch.setattr("policyguard.lint.discovery.read_top_keys", None)
    assert find_policies([tmp_path]) == [tmp_path / "mine.yaml"]


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ("policy: core\ntests: []\n", True),
        ('"policy": core\n"tests": []\n', True),
        ("policy : core\ntests : []\n", True),
        ("{policy: core, tests: []}\n", True),
        ("\ufeffpolicy: core\ntests: []\n", True),
        ("  policy: core\n  tests: []\n", True),
        ('"policy": core\n"tests": [\n', True),
        ("policy: core\n", False),
        ("tests:\n  - policy: core\n", False),
        ("run: {policy: core, tests: []}\n", False),
    ],
)
def test_tests_are_recognized_by_their_two_keys(text: str, ours: bool, tmp_path: Path) -> None:
    file = tmp_path / "tests.yaml"
    file.write_text(text)
    assert has_tests_keys(file) is ours
