"""Evidence on an entry in observe mode: what it would have refused in recorded runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path as FilePath

from policyguard.compiler import CompiledPolicy
from policyguard.engines.yaml_tree import MappingNode, Node, Path, ScalarNode, SequenceNode
from policyguard.model.diagnostic import Edit, Span, did_you_mean
from policyguard.model.errors import PolicyguardError
from policyguard.report.promotion import PromotionFigures, WouldBeRefusal
from policyguard.simulate.labels import Labels
from policyguard.simulate.replay import runs
from policyguard.traces import Reader, Skipped

_SECTIONS = ("rules", "result_rules", "limits", "budgets")
"""The sections whose entries may observe."""
_NAMED_LEVELS = ("tools", "classes")
"""Sections of `limits` whose keys are names of their own."""


class PromotionError(PolicyguardError):
    """The entry cannot be promoted; the message says why."""


class ObservedEntry:
    """An entry of a policy that observes, and where its `mode` is written."""

    def __init__(self, id_: str, span: Span) -> None:
        self.id = id_
        self.span = span

    @property
    def edit(self) -> Edit:
        """The change of the file that lets the entry act."""
        return Edit(self.span, "enforce")


def find_observed(compiled: CompiledPolicy, name: str) -> ObservedEntry:
    """Return the entry in observe mode with an id, or one that ends so. Raises `PromotionError`."""
    if compiled.policy.mode == "observe":
        raise PromotionError("the policy observes as a whole: set its `mode` to `enforce` yourself")
    known = {entry.id: entry for entry in _find_entries(compiled.merged.tree)}
    found = [entry for id_, entry in known.items() if id_ == name or id_.endswith(f"/{name}")]
    if len(found) > 1:
        raise PromotionError(
            f"several entries end in `{name}`: {', '.join(entry.id for entry in found)}"
        )
    if not found:
        hint = did_you_mean(name, known) or (
            f"those that do: {', '.join(known)}" if known else "none does"
        )
        raise PromotionError(f"no entry `{name}` is in observe mode; {hint}")
    if found[0].span.file.startswith("pack:"):
        raise PromotionError(
            f"`{found[0].id}` is written in a pack ({found[0].span.file}): override it in your file"
        )
    return found[0]


def _find_entries(tree: Node) -> Iterator[ObservedEntry]:
    """Yield the entries of a policy that have `mode: observe`."""
    pending: list[tuple[Path, Node]] = [
        ((key.text,), value) for key, value in getattr(tree, "entries", ()) if key.text in _SECTIONS
    ]
    while pending:
        path, node = pending.pop()
        if isinstance(node, SequenceNode):
            pending.extend((path, item) for item in node.items)
        if not isinstance(node, MappingNode):
            continue
        for key, value in node.entries:
            if key.text == "mode" and isinstance(value, ScalarNode):
                if value.text == "observe":
                    yield ObservedEntry(_entry_id(path), value.span)
            else:
                pending.append(((*path, key.text), value))


def _entry_id(path: Path) -> str:
    section, *rest = map(str, path)
    if section == "limits" and rest[0] in _NAMED_LEVELS:
        rest = [f"{rest[0]}:{rest[1]}", *rest[2:]]
    return "/".join((section, *rest))


def collect_evidence(
    compiled: CompiledPolicy,
    entry: str,
    files: Iterable[FilePath],
    labels: Labels | None,
    on_skipped: Callable[[Skipped], None],
) -> PromotionFigures:
    """Replay recorded runs, and count what an entry in observe mode would have refused."""
    figures = PromotionFigures(entry=entry)
    traces = (trace for file in files for trace in Reader().iter_files(file))
    for run in runs(compiled, traces, on_skipped=on_skipped):
        if not run.calls:
            continue
        success = run.success
        if labels is not None:
            _, labelled = labels.find(run.id, run.label_file, only_session=False)
            success = success if labelled is None else labelled
        figures.sessions += 1
        figures.calls += run.calls
        figures.redacted += run.redacted_args
        figures.succeeded += success is True
        figures.failed += success is False
        hits = sum(
            count
            for (id_, _, observed), count in run.replay.hits.items()
            if observed and id_ == entry
        )
        if hits:
            figures.refusals.append(WouldBeRefusal(run.id, run.file, hits, success))
    return figures
