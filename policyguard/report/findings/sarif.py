"""Render findings as SARIF 2.1.0, the exchange format of static analysers.

An ignored finding is a result with a suppression; what `--fix` would change is a result's fix.
Columns count code points, as `columnKind` states.
"""

from __future__ import annotations

import os
from itertools import groupby
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from policyguard.model.diagnostic import Diagnostic, Span
from policyguard.report.escape import json_document
from policyguard.report.findings.diagnostics import Findings

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}

Json = dict[str, Any]


def render_sarif(findings: Findings) -> str:
    """Render one run, with one result per finding and one rule per reported code."""
    from importlib.metadata import version  # slow to import (9 ms)

    results = [(found, "") for found in findings.diagnostics] + list(findings.ignored)
    codes = sorted({found.code for found, _ in results})
    run = {
        "tool": {
            "driver": {
                "name": "policyguard",
                "semanticVersion": version("policyguard-engine"),
                "rules": [_rule(code, findings.pages.get(code, "")) for code in codes],
            }
        },
        "invocations": [{"executionSuccessful": True}],
        "columnKind": "unicodeCodePoints",
        "results": [_result(found, reason, codes.index(found.code)) for found, reason in results],
    }
    return json_document({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _rule(code: str, page: str) -> Json:
    """Return the rule of a code, with its page; the first paragraph is its description."""
    description = " ".join(page.partition("\n\n")[0].split())
    rule: Json = {"id": code}
    if page:
        rule["shortDescription"] = {"text": _escaped(description)}
        rule["help"] = {"text": _escaped(page), "markdown": page}
    return rule


def _result(found: Diagnostic, reason: str, index: int) -> Json:
    text = found.message if found.help is None else f"{found.message}\nhelp: {found.help}"
    region = _region(found.span)
    if found.lines:
        region["snippet"] = {"text": "\n".join(found.lines)}
    result: Json = {
        "ruleId": found.code,
        "ruleIndex": index,
        "level": _LEVELS[found.severity],
        "message": {"text": _escaped(text)},
        "locations": [
            {"physicalLocation": {"artifactLocation": _file(found.span.file), "region": region}}
        ],
    }
    if found.edits:
        result["fixes"] = [_fix(found)]
    if reason:
        result["suppressions"] = [{"kind": "inSource", "justification": reason}]
    return result


def _fix(found: Diagnostic) -> Json:
    edits = sorted(found.edits, key=lambda edit: edit.span)
    return {
        "description": {"text": _escaped(found.help or found.message)},
        "artifactChanges": [
            {
                "artifactLocation": _file(file),
                "replacements": [
                    {"deletedRegion": _region(edit.span), "insertedContent": {"text": edit.text}}
                    for edit in group
                ],
            }
            for file, group in groupby(edits, key=lambda edit: edit.span.file)
        ],
    }


def _region(span: Span) -> Json:
    return {
        "startLine": span.line,
        "startColumn": span.column,
        "endLine": span.end_line,
        "endColumn": span.end_column,
    }


def _file(name: str) -> Json:
    """Return a file's URI, relative to the current folder if possible."""
    if name.startswith("pack:"):
        return {"uri": quote(name, safe="/:")}
    path = PurePath(os.path.normpath(name))
    if path.is_absolute():
        return {"uri": path.as_uri()}
    # Also quotes `:`, before which there would be a scheme.
    return {"uri": quote(os.fsencode(path.as_posix())), "uriBaseId": "%SRCROOT%"}


def _escaped(text: str) -> str:
    """Escape placeholders (section 3.11.5) and links (3.11.6) in a SARIF message."""
    return text.replace("{", "{{").replace("}", "}}").replace("](", "\\](")
