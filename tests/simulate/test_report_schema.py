"""The published schema of the report matches the report."""

from __future__ import annotations

import json
from inspect import cleandoc
from pathlib import Path
from typing import Any

import jsonschema
import msgspec

from policyguard.compiler import compile_policy
from policyguard.report.replay.figures import Figures
from policyguard.report.replay.renderers import render_json
from policyguard.simulate import Replay
from policyguard.traces import Reader

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "schemas" / "report.schema.json"


def _dedent(value: Any) -> Any:
    """Dedent the descriptions, which are docstrings, as Python does from 3.13 on."""
    if isinstance(value, dict):
        return {key: _dedent(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_dedent(item) for item in value]
    return cleandoc(value) if isinstance(value, str) else value


def test_the_schema_matches_the_figures() -> None:
    made = _dedent(json.loads(json.dumps(msgspec.json.schema(Figures))))
    published = _dedent(json.loads(SCHEMA.read_text()))
    assert {key: published[key] for key in made} == made, (
        "write schemas/report.schema.json anew from msgspec.json.schema(Figures)"
    )


def test_a_report_is_valid() -> None:
    replay = Replay(compile_policy("core"), observe=False, labels=None)
    replay.add(Reader().read(ROOT / "docs" / "demo" / "trace.jsonl"))
    report = json.loads(render_json(replay.finish()))
    jsonschema.validate(report, json.loads(SCHEMA.read_text()))
