"""Signature matches on failed results (wanted) and all others (unwanted).

    python -m benchmarks.signatures [TRACES]

A set is a folder directly below TRACES (POLICYGUARD_TRACES, ../shared/traces). Signatures apply to
failures only; matches in other results show how easily they misfire on code, documentation and
data. Compares `core` with the twelve published signatures of "narrowing". Prints Markdown for
docs/signatures.md.
"""

from __future__ import annotations

import argparse
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from policyguard.compiler import CompiledPolicy, compile_policy
from policyguard.compiler.build.outcome_matchers import SignatureMatcher
from policyguard.model.event import Completed
from policyguard.traces import Reader, TraceError, expand

DEFAULT = os.environ.get("POLICYGUARD_TRACES", "../shared/traces")
TWELVE = 12
"""The signatures of narrowing's tool-call adapter; its pack lists universal ones after them."""
FIRST_ERROR_STATUS = 400
MAX_TEXT = 60
MAX_UNMATCHED = 5

Match = Callable[[str], str]


@dataclass
class SignatureCounts:
    """The matches of one policy in one set's results, counted by signature."""

    failed: Counter[str] = field(default_factory=Counter)
    other: Counter[str] = field(default_factory=Counter)
    unmatched: Counter[str] = field(default_factory=Counter)


@dataclass
class TraceSet:
    """One set of recorded runs: the number of results, and the matches of each policy."""

    name: str
    failed: int
    other: int
    found: dict[str, SignatureCounts]


def matchers() -> dict[str, Match]:
    """Return for each policy a function from a failure's text to a signature id, or empty."""
    core, narrowing = compile_policy("core"), compile_policy("packs/narrowing")
    return {
        "core": _match(core, len(core.policy.signatures)),
        "narrowing's twelve": _match(narrowing, TWELVE),
    }


def _match(compiled: CompiledPolicy, first: int) -> Match:
    signatures = SignatureMatcher(compiled.policy.signatures[:first])

    def match(text: str) -> str:
        found = signatures.match(text, failed=True)
        return found[0] if found is not None else ""

    return match


def measure(traces: Path, matchers: dict[str, Match]) -> Iterator[TraceSet]:
    """Yield every set with results."""
    for folder in sorted(path for path in traces.iterdir() if path.is_dir()):
        measured = TraceSet(folder.name, 0, 0, {name: SignatureCounts() for name in matchers})
        for failed, text in _results(folder):
            measured.failed += failed
            measured.other += not failed
            for name, match in matchers.items():
                counts = measured.found[name]
                signature = match(text)
                if signature:
                    (counts.failed if failed else counts.other)[signature] += 1
                elif failed:
                    counts.unmatched[_mask_numbers(text)] += 1
        if measured.failed or measured.other:
            yield measured


def _results(folder: Path) -> Iterator[tuple[bool, str]]:
    reader = Reader()
    try:
        files = list(expand([folder]))
    except TraceError:
        return
    for file in files:
        for item in reader.read(file):
            if isinstance(item, Completed):
                failed = item.ok is False or item.error is not None
                if item.ok is None and not failed:
                    failed = bool(item.exit_code) or (item.status or 0) >= FIRST_ERROR_STATUS
                yield failed, item.text if item.error is None else item.error


def _mask_numbers(text: str) -> str:
    """Return the start of an error as a table cell, with numbers masked."""
    line = re.sub(r"\d+", "#", " ".join(text.split()))[:MAX_TEXT]
    return line.replace("|", "/").replace("`", "'") or "(no text)"


def tables(sets: list[TraceSet], names: list[str]) -> str:
    """Format sets by policy, then signatures by policy, then unmatched failures."""
    heads = " | ".join(f"{name}: matched | {name}: fires" for name in names)
    lines = [f"| set | failed | other | {heads} |", "|---" * (3 + 2 * len(names)) + "|"]
    for one in sets:
        cells = " | ".join(
            f"{one.found[name].failed.total()} | {one.found[name].other.total()}" for name in names
        )
        lines.append(f"| {one.name} | {one.failed} | {one.other} | {cells} |")
    totals = " | ".join(
        f"{sum(one.found[name].failed.total() for one in sets)} | "
        f"{sum(one.found[name].other.total() for one in sets)}"
        for name in names
    )
    failed, other = sum(one.failed for one in sets), sum(one.other for one in sets)
    lines.append(f"| **all** | {failed} | {other} | {totals} |")
    for name in names:
        lines += ["", f"**{name}**", "", "| signature | failed | other |", "|---|---|---|"]
        matched = _sum(one.found[name].failed for one in sets)
        fired = _sum(one.found[name].other for one in sets)
        ids = sorted(matched | fired, key=lambda id_: (-matched[id_], -fired[id_], id_))
        lines += [f"| {id_} | {matched[id_]} | {fired[id_]} |" for id_ in ids]
        unmatched = _sum(one.found[name].unmatched for one in sets)
        suffix = ", most often:" if unmatched else ""
        lines += ["", f"Unmatched: {unmatched.total()}{suffix}"]
        lines += [f"- {count} × `{text}`" for text, count in unmatched.most_common(MAX_UNMATCHED)]
    return "\n".join(lines)


def _sum(counters: Iterator[Counter[str]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for counter in counters:
        total.update(counter)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="?", default=DEFAULT, type=Path)
    options = parser.parse_args()
    named_matchers = matchers()
    print(tables(list(measure(options.traces, named_matchers)), list(named_matchers)))


if __name__ == "__main__":
    main()
