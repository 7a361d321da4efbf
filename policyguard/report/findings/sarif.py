"""Findings as SARIF 2.1.0, the format in which analysers hand their results to other programs.

What a comment ignores is a result with a suppression, so that it is not lost; what `--fix` would
change is a result's fix. Columns count code points, and the log says so.
"""

from __future__ import annotations

import os
from itertools import groupby
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from policyguard.model.diagnostic import Diagnostic, Span
from policyguard.report.escape import json_document
from policyguard.report.findings.findings import Findings

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}

Json = dict[str, Any]


def render_sarif(findings: Findings) -> str:
    """One run, with one result a finding and one rule for each code among them."""
    from importlib.metadata import version  # 9 ms, which no other format needs

    told = [(found, "") for found in findings.diagnostics] + list(findings.ignored)
    codes = sorted({found.code for found, _ in told})
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
        "results": [_result(found, reason, codes.index(found.code)) for found, reason in told],
    }
    return json_document({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _rule(code: str, page: str) -> Json:
    """A code, with its page: the first paragraph says what it is."""
    first = " ".join(page.partition("\n\n")[0].split())
    rule: Json = {"id": code}
    if page:
        rule["shortDescription"] = {"text": _escaped(first)}
        rule["help"] = {"text": _escaped(page), "markdown": page}
    return rule


def _result(found: Diagnostic, reason: str, index: int) -> Json:
    said = found.message if found.help is None else f"{found.message}\nhelp: {found.help}"
    region = _region(found.span)
    if found.lines:
        region["snippet"] = {"text": "\n".join(found.lines)}
    result: Json = {
        "ruleId": found.code,
        "ruleIndex": index,
        "level": _LEVELS[found.severity],
        "message": {"text": _escaped(said)},
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
                    {
                        "deletedRegion": _region(edit.span),
                        "insertedContent": {"text": edit.text},
                    }
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
    """A file as a URI: relative to the folder that was linted from, where it lies in there."""
    if name.startswith("pack:"):
        return {"uri": quote(name, safe="/:")}
    path = PurePath(os.path.normpath(name))
    if path.is_absolute():
        return {"uri": path.as_uri()}
    # `:` is quoted too: what stands before it would be taken for a scheme.
    return {"uri": quote(os.fsencode(path.as_posix())), "uriBaseId": "%SRCROOT%"}


def _escaped(text: str) -> str:
    """Plain text of a SARIF message, in which `{0}` is an argument and `[a](b)` a link.

    Braces are doubled (section 3.11.5), and no bracket of the author's closes a link (3.11.6).
    """
    return text.replace("{", "{{").replace("}", "}}").replace("](", "\\](")
