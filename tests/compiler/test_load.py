"""The files of a policy, and their order."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib import resources
from pathlib import Path

import pytest

from policyguard.compiler.load.loader import MAX_EXTENDS_DEPTH, load_layers
from policyguard.engines.source import MAX_FILE_BYTES
from policyguard.report.findings.diagnostics import render_text
from tests.compiler.setup import load_text, read_files, read_text


def write(folder: Path, **files: str) -> None:
    """Write policies by name, each with its `extends`."""
    for name, extends in files.items():
        path = folder / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"policyguard: 1\nname: {name}\nextends: {extends}\n")


def order(*names: str | Path) -> list[str]:
    loaded = load_layers(names)
    assert loaded.diagnostics == []
    return [Path(layer.source.file).stem for layer in loaded.layers]


def codes(*names: str | Path) -> list[str]:
    loaded = load_layers(names)
    assert not loaded.is_complete
    return [found.code for found in loaded.diagnostics]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_extended_files_come_first_in_order(here):
    write(here, a="[b.yaml, c.yaml]", b="[]", c="[]")
    assert order("a.yaml") == ["b", "c", "a"]


def test_shared_base_is_loaded_once(here):
    write(here, a="[b.yaml, c.yaml]", b="[d.yaml]", c="[./d.yaml]", d="[]")
    assert order("a.yaml") == ["d", "b", "c", "a"]


def test_several_policies_load_in_order(here):
    write(here, a="[c.yaml]", b="[c.yaml]", c="[]")
    assert order("b.yaml", "a.yaml") == ["c", "b", "a"]


def test_names_are_relative_to_the_naming_file(here):
    (here / "team").mkdir()
    write(here, base="[]")
    (here / "team" / "policy.yaml").write_text(
        "policyguard: 1\nname: team\nextends: [../base.yaml]\n"
    )
    assert [layer.source.file for layer in load_layers(["team/policy.yaml"]).layers] == [
        "base.yaml",
        "team/policy.yaml",
    ]


def test_text_extends_files_relative_to_its_name(here):
    (here / "team").mkdir()
    write(here / "team", base="[]")
    loaded = load_text("extends: [base.yaml]", str(here / "team" / "new.yaml"))
    assert loaded.is_complete
    assert len(loaded.layers) == 2


def test_link_is_its_target(here):
    write(here, a="[b.yaml, link.yaml]", b="[]")
    (here / "link.yaml").symlink_to(here / "b.yaml")
    assert order("a.yaml") == ["b", "a"]


def test_extends_cycle_is_reported(here):
    write(here, a="[b.yaml]", b="[c.yaml]", c="[a.yaml]")
    loaded = load_layers(["a.yaml"])
    (found,) = loaded.diagnostics
    assert found.code == "load/extends-cycle"
    assert "a.yaml → b.yaml → c.yaml → a.yaml" in found.message
    assert [layer.source.file for layer in loaded.layers] == ["c.yaml", "b.yaml", "a.yaml"]


def test_extends_depth_is_bounded(here):
    for number in range(MAX_EXTENDS_DEPTH + 2):
        write(here, **{f"f{number}": f"[f{number + 1}.yaml]"})
    write(here, **{f"f{MAX_EXTENDS_DEPTH + 2}": "[]"})
    assert codes("f0.yaml") == ["load/too-deep"]
    assert len(order(f"f{MAX_EXTENDS_DEPTH}.yaml")) == 3


def test_unreadable_names_are_reported_where_they_are_written(here):
    (here / "folder").mkdir()
    (here / "large.yaml").write_text("#" * (MAX_FILE_BYTES + 1))
    os.mkfifo(here / "pipe.yaml")
    names = ["missing.yaml", "./folder", "large.yaml", "pipe.yaml", "x" * 5000 + ".yaml"]
    names += ['"null\\0byte.yaml"', "https://x.example/p.yaml", "file:///etc/passwd"]
    write(here, a="[" + ", ".join(names) + "]")
    assert codes("a.yaml") == [
        "load/not-found",
        "load/not-a-file",
        "load/too-large",
        "load/not-a-file",
        "load/unreadable",
        "load/not-found",
        "load/address",
        "load/address",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "root:x:0:0:hunter2:/root:/bin/sh\nabc:hunter2\n",
        "password: hunter2\nothers: [hunter2]\n",
        "password: 'hunter2\n",
        "{hunter2: [",
        "- hunter2\n",
        "a: hunter2\na: hunter2\n",
        "hunter2\x01",
        "hunter2\udcff",
    ],
)
def test_text_of_other_files_is_never_shown(here, text):
    write(here / "team", a="[../other]")
    (here / "other").write_bytes(text.encode("utf-8", "surrogateescape"))
    diagnostics = read_files("team/a.yaml").diagnostics
    (found,) = diagnostics
    assert (found.code, found.span.file) == ("load/not-a-policy", "team/a.yaml")
    assert "hunter2" not in render_text(diagnostics)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("policyguard: 1\nname: 'b", "yaml/syntax"),
        ('{"policyguard": 1, "name": ', "yaml/syntax"),
        ("policyguard: 1\nname: b\x01", "yaml/control-character"),
        ("policyguard: 1\nnames: b\n", "schema/unknown-key"),
    ],
)
def test_errors_in_an_extended_policy_are_shown(here, text, code):
    write(here, a="[b.yaml]")
    (here / "b.yaml").write_text(text)
    diagnostics = read_files("a.yaml").diagnostics
    assert code in [found.code for found in diagnostics if found.span.file == "b.yaml"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_forbidden_file_is_reported_at_its_name(here):
    write(here, a="[b.yaml]", b="[]")
    (here / "b.yaml").chmod(0)
    assert codes("a.yaml") == ["load/unreadable"]


def test_missing_policy_is_a_diagnostic(here):
    assert codes("nothing.yaml") == ["load/not-found"]
    assert codes("nothing") == ["load/not-found"]
    assert codes(here) == ["load/not-a-file"]
    (found,) = load_layers(["nothing.yaml"]).diagnostics
    assert (found.span.file, found.span.line, found.span.column) == ("nothing.yaml", 1, 1)


def test_path_is_never_a_pack(here):
    assert codes(Path("core")) == ["load/not-found"]


@pytest.mark.parametrize("extends", ["core", "{a: b}", "[[core]]", "[5]", "[null]"])
def test_malformed_extends_is_a_schema_error(extends):
    result = read_text(f"policyguard: 1\nname: x\nextends: {extends}\n")
    assert [found.code for found in result.diagnostics] == ["schema/type"]


def test_core_is_found_from_every_folder(here):
    result = read_files("core")
    assert result.diagnostics == []
    assert result.policy.name == "core"
    shown = {layer.source.file for layer in load_layers(["core"]).layers}
    assert "pack:core/policy.yaml" in shown
    assert all(name.startswith("pack:core/") for name in shown)


def test_pack_reads_nothing_outside_its_folder(tmp_path):
    """A zipped package with a pack that tries to read other files."""
    archive = tmp_path / "package.zip"
    extends = "[core, near.yaml, ../../core/limits.yaml, /etc/passwd]"
    with zipfile.ZipFile(archive, "w") as package:
        for name in ("policyguard", "policyguard.policies", "policyguard.schemas"):
            folder = Path(str(resources.files(name)))
            for file in sorted(folder.rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    inside = Path(name.replace(".", "/")) / file.relative_to(folder)
                    package.write(file, inside)
        nosy = "policyguard/policies/packs/nosy"
        package.writestr(f"{nosy}/policy.yaml", f"policyguard: 1\nname: nosy\nextends: {extends}\n")
        package.writestr(f"{nosy}/near.yaml", "policyguard: 1\nname: near\n")
    script = (
        "import policyguard\n"
        "from policyguard.compiler.pipeline import load_layers, read_layers\n"
        "print(policyguard.__file__)\n"
        "for name in ('core', 'nosy', 'packs/nosy', 'nosi'):\n"
        "    made = read_layers(load_layers([name]), {})\n"
        "    print([found.message for found in made.diagnostics], len(made.merged.sources))\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(archive)}
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=environ,
        cwd=tmp_path,
        check=True,
    )
    file, core, nosy, again, nosi = ran.stdout.splitlines()
    assert file.startswith(str(archive))
    assert core.startswith("[] ")
    assert "`../../core/limits.yaml` is outside the pack" in nosy
    assert "`/etc/passwd` is outside the pack" in nosy
    assert nosy == again
    assert "no pack named `nosi`" in nosi
