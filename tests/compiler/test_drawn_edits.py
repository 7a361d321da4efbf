"""Drawn edits of policies: what lint says and what they compile to is what was written down.

`tests/cases/drawn_edits.txt` has a paragraph for each policy, with a line for each edit: the edited
lines' file, the edits, the codes found with their places, and a checksum of all that was said. If
the policy is valid, two more follow: of what it compiles to, and of a play under it.
After a change of behaviour that is wanted, run with `POLICYGUARD_PIN=1` and read the difference.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from policyguard import compiler
from policyguard.cel.syntax.parse import parse
from policyguard.compiler import CompiledPolicy, check_policy, compile_policy
from policyguard.compiler.load.loader import load_layers
from policyguard.compiler.provenance import collect_provenance
from policyguard.lint import lint_paths, linter
from policyguard.model.diagnostic import Diagnostic
from policyguard.report.findings.diagnostics import sort_unique
from policyguard.report.policy.annotated import render_text
from tests.compiler.drawn_edits import EDITS, GENTLE_EDITS, draw_edit
from tests.compiler.drawn_layers import TOOLS_JSON, draw_layers
from tests.compiler.edited_play import EditedPlay
from tests.guard.play import see_at_once
from tests.pinned_lines import PinnedLines

__all__ = ["see_at_once"]

pytestmark = pytest.mark.usefixtures("see_at_once")

ROOT = Path(__file__).parents[2]
PINNED = PinnedLines("drawn_edits.txt")
LARGE = 5000
"""Bytes of a policy that takes long to compile."""
STEPS = 12
SEEDS = (
    1, 2, 4, 7, 8, 9, 12, 14, 15, 17, 18, 23, 24, 25, 26, 27, 28, 29, 30, 31, 35, 38, 39, 40,
    41, 43, 44, 47, 52, 54, 55, 56, 58, 59, 60, 62, 63, 70, 72, 76,
)  # fmt: skip
"""Those of drawn policies that were valid when they were chosen."""


def find_policies() -> dict[str, list[Path]]:
    """Return the files of each policy, by name."""
    found: dict[str, list[Path]] = {}
    for pattern in ("policies/core/*.yaml", "policies/packs/*/policy.yaml"):
        for file in sorted(ROOT.glob(pattern)):
            if not file.name.startswith("tests"):
                found[str(file.relative_to(ROOT / "policies"))] = [file]
    core = found["core/policy.yaml"]
    core += [file for file in sorted(core[0].parent.glob("*.yaml")) if file not in core]
    for folder in sorted((ROOT / "tests" / "cases").glob("lint/*/")):
        if (folder / "policy.yaml").exists():
            found[folder.name] = sorted(file for file in folder.iterdir() if file.is_file())
    for folder in sorted((ROOT / "tests" / "cases").glob("lint/rules/*/")):
        for file in sorted(folder.glob("*ing.yaml")):
            found[f"{folder.name} {file.stem}"] = [file, *folder.glob("base.yaml")]
    for folder in sorted((ROOT / "tests" / "cases").glob("traces/*/"))[::5]:
        found[folder.name] = [folder / "policy.yaml"]
    found["plays"] = [ROOT / "tests" / "cases" / "plays" / "policy.yaml"]
    needs_extra = [name for name, (file, *_) in found.items() if ".sql(" in file.read_text("utf-8")]
    return {name: files for name, files in found.items() if name not in needs_extra}


POLICIES = find_policies()
DRAWN = [f"layers {seed}" for seed in SEEDS]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, in which the edited policy is, as are its other files."""
    parse("true", lambda *_: None)  # the table of CEL's parser
    monkeypatch.setenv("POLICYGUARD_CACHE", "off")
    for name in ("MOST", "CLEAN_CALLS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[CompiledPolicy | None]:
    """What lint compiled."""
    kept: list[CompiledPolicy | None] = []

    def check(file: Path) -> tuple[CompiledPolicy | None, list[Diagnostic]]:
        found = check_policy(file, environ={})
        kept.append(found[0])
        return found

    monkeypatch.setattr(linter, "check_policy", check)
    return kept


def make_pick(seed: str) -> Callable[..., Any]:
    generator = random.Random(seed)  # noqa: S311 - no secret
    return lambda *choices: choices[int(generator.random() * len(choices))]


def is_large(file: Path) -> bool:
    """Whether a policy takes long to compile."""
    text = file.read_text("utf-8", "replace")
    return len(text) > LARGE or re.search(r"\b(core|agent|strict)\b", text) is not None


def draw_files(folder: Path, name: str, graft: str = "") -> None:
    """Write a drawn policy, and one that it extends, `graft` with a part of another one."""
    pick = make_pick(name)
    layers = draw_layers(pick)
    if graft:
        pick = make_pick(graft)
        layer, other = pick(*layers), pick(*draw_layers(pick))
        sections = [key for key in other if key not in ("name", "extends", "policyguard")]
        section = pick("rules", *sections)
        layer[section] = other[section]
    for file, policy in zip(("base.yaml", "policy.yaml"), layers, strict=True):
        style = pick(None, False)
        text = json.dumps(policy, indent=1)  # which is YAML, and quick
        if file == "policy.yaml":
            text = yaml.safe_dump(policy, sort_keys=False, default_flow_style=style, width=1000)
        (folder / file).write_text(text, "utf-8")
    (folder / "tools.json").write_text(TOOLS_JSON, "utf-8")


def draw_edits(folder: Path, name: str) -> Iterator[tuple[str, str, Path]]:
    """Yield what was edited, the text that was written, and the policy's file."""
    files = POLICIES.get(name)
    edits = EDITS
    if files is None:
        top = folder / "policy.yaml"
        for graft in (f"{name} graft", ""):
            draw_files(folder, name, graft)
            yield "with a part of another" if graft else "drawn", top.read_text("utf-8"), top
        edits = GENTLE_EDITS
    else:
        for file in files:
            shutil.copy(file, folder)
        top = folder / files[0].name
        top = folder / "policy.yaml" if (folder / "policy.yaml").exists() else top
    editable = sorted(file for file in folder.iterdir() if file.suffix in (".yaml", ".json"))
    if not any("schemas:" in file.read_text("utf-8", "replace") for file in editable):
        editable = [file for file in editable if file.suffix == ".yaml"]
    for number in range(1 if is_large(top) else 2):
        pick = make_pick(f"{name} {number}")
        edited = pick(top, top, top, *editable)
        before = edited.read_text("utf-8")
        text, said = before, [edited.name]
        for _ in range(pick(1, 1, 1, 2, 3)):
            text, edit = draw_edit(text, pick, edits)
            said.append(edit)
        edited.write_text(text, "utf-8", newline="")
        yield ", ".join(said), text, top
        edited.write_text(before, "utf-8", newline="")


def encode(value: Any) -> str:
    """Return JSON that does not depend on the order of sets."""
    return msgspec.json.encode(value, enc_hook=str, order="deterministic").decode()


def describe(policy: CompiledPolicy) -> str:
    """Return what a policy compiles to."""
    typed = msgspec.structs.replace(policy.policy, digest="")
    parts = [
        encode(typed),
        *(f"{p} {e.source} {e.type} {sorted(e.reads)} {e.warnings}" for p, e in policy.expressions),
        *(f"{entry.id} {encode(entry.schedule)}" for entry in policy.radius),
        *policy.learning,
        *(str(diagnostic) for diagnostic in policy.diagnostics),
    ]
    return "\n".join(parts)


def describe_sources(policy: CompiledPolicy, files: list[Path]) -> str:
    """Return which layer each value of a policy is from."""
    shown = collect_provenance(policy.policy, policy.merged, load_layers(files).layers)
    return render_text(shown, overridden=True)


def play(policy: CompiledPolicy, text: str) -> str:
    """Return what a play under a policy comes to."""
    policy.fingerprinter.rekey(b"the same for all")
    played = EditedPlay(policy, text)
    played.look(policy)
    return "\n".join(played.go(STEPS))


def crc(text: str) -> str:
    return f"{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def summarize(diagnostics: list[Diagnostic]) -> str:
    """Return the first codes with their places, and a checksum of all that was said."""
    codes = [f"{one.code} {one.span.line}:{one.span.column}" for one in diagnostics]
    codes[3:] = [f"+{len(codes) - 3}"] if len(codes) > 3 else []
    said = crc(json.dumps(msgspec.to_builtins(diagnostics)))
    return f"{', '.join(codes)} {said}" if codes else "clean"


@pytest.mark.parametrize("name", [*POLICIES, *DRAWN])
def test_edits_of_a_policy_come_to_what_was_written_down(
    folder: Path, compiled: list[CompiledPolicy | None], name: str
) -> None:
    lines = []
    for edit, text, file in draw_edits(folder, name):
        compiled.clear()
        top = file.relative_to(folder)
        if is_large(file) or name in DRAWN:
            policy, found = check_policy(top, environ={})
            diagnostics = sort_unique(found)
        else:
            diagnostics = lint_paths([top]).diagnostics
            policy = compiled[0]
        line = f"{edit}: {summarize(diagnostics)}"
        if policy is not None:
            described = describe(policy)
            if not is_large(top):
                described += describe_sources(policy, [top])
            line += f" -> {crc(described)} {crc(play(policy, text))}"
        lines.append(line)
    PINNED.check(name, lines)


@pytest.mark.parametrize("name", DRAWN[::6])
def test_a_policy_from_the_cache_is_the_one_that_was_compiled(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("POLICYGUARD_CACHE", str(folder / "cache"))
    draw_files(folder, name)
    text = (folder / "policy.yaml").read_text("utf-8")
    policies = [compile_policy("policy.yaml", environ={}, cache=True)]
    monkeypatch.setattr(compiler, "check_policy", None)  # a second time nothing is compiled
    policies.append(compile_policy("policy.yaml", environ={}, cache=True))
    fresh, kept = (
        (describe(policy), describe_sources(policy, [Path("policy.yaml")]), play(policy, text))
        for policy in policies
    )
    assert kept == fresh
    fresh_findings, kept_findings = (lint_paths([Path("policy.yaml")]) for _ in range(2))
    assert kept_findings == fresh_findings
