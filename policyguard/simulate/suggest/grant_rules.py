"""Many alike approvals to a proposed change of the rule that asked, and its replay.

A proposal is no wider than the grant of the same pattern (see `evaluator/grants.py`). It is for a
person to read: nothing holds until it is in a policy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from policyguard.compiler import CompiledPolicy
from policyguard.engines.yaml_tree import MappingNode, to_plain
from policyguard.model.event import Admitted, Approved, Refused, SessionEnded, SessionStarted
from policyguard.model.grant import CallPattern
from policyguard.report.grant_rules import GrantProposal, GrantSuggestion
from policyguard.simulate.replay import Replay, use_replay_key
from policyguard.simulate.suggest.override_layer import (
    compile_layer,
    relative_extends,
    render_layer,
)
from policyguard.traces import Reader, Skipped

_NARROW_FIRST = ("prefix", "target", "tool")
_PLAIN_WORD = r"[A-Za-z0-9_./:=@%,][A-Za-z0-9_./:=@%,+-]*"
"""A word of a command that no shell changes, and that is no option."""


class AskedCall(msgspec.Struct, frozen=True):
    """A call that a rule asked about, in a session in the folder `cwd`."""

    rule: str
    call: Refused
    cwd: str
    is_approved: bool


def find_asked(files: Iterable[Path], on_skipped: Callable[[Skipped], None]) -> Iterator[AskedCall]:
    """Yield each call of journals that rules asked about, once a rule and session."""
    for file in files:
        for trace in Reader().iter_files(file):
            started: dict[str, SessionStarted] = {}
            asked: dict[tuple[str, str], Refused] = {}
            approved: set[tuple[str, str]] = set()
            for item in trace:
                match item:
                    case Skipped():
                        on_skipped(item)
                    case SessionStarted():
                        started[item.session] = item
                    case Refused(effect="ask"):
                        fingerprint = item.exact_fingerprint or item.fingerprint
                        asked.setdefault((item.session, fingerprint), item)
                    case Approved():
                        approved.add((item.session, item.fingerprint))
                    case SessionEnded() | Admitted() | _:
                        continue
            for key, call in asked.items():
                cwd = started[call.session].cwd if call.session in started else ""
                for entry in call.violations:
                    section, _, rule = entry.partition("/")
                    if section == "rules":
                        yield AskedCall(rule, call, cwd, key in approved)


def suggest_rules(
    compiled: CompiledPolicy,
    policies: Sequence[str],
    folder: Path,
    files: Sequence[Path],
    min_approvals: int,
    on_skipped: Callable[[Skipped], None],
) -> GrantSuggestion:
    """Propose `unless` for rules whose questions were always answered with yes, and replay it.

    `policies` are the names that `compiled` was made from; the layer is for a file in `folder`.
    `min_approvals` is how many different calls of a kind must have been approved; one that was not
    approved speaks against all of its kind.
    """
    asked = list(find_asked(files, on_skipped))
    proposals: list[GrantProposal] = []
    remaining = asked
    for remember in _NARROW_FIRST:
        groups: dict[tuple[str, str], list[tuple[AskedCall, CallPattern]]] = {}
        for one in remaining:
            pattern = _find_pattern(compiled, one, remember)
            if pattern is not None:
                key = one.rule, repr(msgspec.structs.replace(pattern, options=()))
                groups.setdefault(key, []).append((one, pattern))
        covered: set[int] = set()
        for (rule, _), members in groups.items():
            refused = sum(not one.is_approved for one, _ in members)
            if refused or len(members) < min_approvals:
                continue
            options = sorted({option for _, pattern in members for option in pattern.options})
            pattern = msgspec.structs.replace(members[0][1], options=tuple(options))
            condition = write_condition(pattern, reads_paths=bool(compiled.policy.classify.paths))
            proposals.append(GrantProposal(rule, pattern.text, condition, len(members)))
            covered.update(id(one) for one, _ in members)
        remaining = [one for one in remaining if id(one) not in covered]
    suggestion = GrantSuggestion(
        asked=len(asked), approved=sum(one.is_approved for one in asked), proposals=proposals
    )
    if proposals:
        entries = _change_rules(compiled, proposals)
        name = f"{compiled.policy.name}-granted"
        suggestion.layer = render_layer(name, relative_extends(policies, folder), entries)
        here = render_layer(name, relative_extends(policies, Path()), entries)
        _replay_layer(compiled, here, suggestion, files)
    return suggestion


def _find_pattern(compiled: CompiledPolicy, asked: AskedCall, remember: str) -> CallPattern | None:
    known = {rule.id for rule in compiled.policy.rules}
    if asked.rule not in known:
        return None
    try:
        pattern = compiled.evaluator.patterns.find_pattern(asked.call, remember, asked.cwd)
    except ValueError:
        return None
    return None if pattern.workdirs else pattern


def write_condition(pattern: CallPattern, *, reads_paths: bool) -> str:
    """Return the CEL condition of the calls that a pattern covers.

    `reads_paths`: the policy names the arguments that hold paths, without which `call.paths` is an
    error at load. Where it does not, a command's paths are free.
    """
    parts = [f"call.tool == {_quote(pattern.tool)}"]
    if pattern.server:
        parts.append(f"call.server == {_quote(pattern.server)}")
    if pattern.targets:
        targets = ", ".join(map(_quote, pattern.targets))
        parts.append(f"size(call.targets) > 0 && call.targets.all(t, t in [{targets}])")
    if pattern.command:
        words = " ".join(map(re.escape, pattern.command))
        more = "|".join((*map(re.escape, pattern.options), _PLAIN_WORD))
        parts.append(f"call.command.matches({_quote(f'^{words}(?: (?:{more}))*$')})")
        if pattern.cwd and reads_paths:
            parts.append(f"call.paths.all(p, p.inside({_quote(pattern.cwd)}))")
    if pattern.folder:
        folder = _quote(pattern.folder)
        parts.append(f"size(call.paths) > 0 && call.paths.all(p, p.inside({folder}))")
    if pattern.cwd:
        parts.append(f"session.cwd == {_quote(pattern.cwd)}")
    return " && ".join(parts)


def _quote(text: str) -> str:
    return json.dumps(text)


def _change_rules(
    compiled: CompiledPolicy, proposals: Sequence[GrantProposal]
) -> dict[tuple[str | int, ...], dict[str, Any]]:
    """Return the rules with their new `unless`, whole: a layer replaces whole entries."""
    entries: dict[tuple[str | int, ...], dict[str, Any]] = {}
    for proposal in proposals:
        path = "rules", proposal.rule
        if path not in entries:
            node = compiled.merged.node(path)
            plain = to_plain(node) if isinstance(node, MappingNode) else {}
            plain.pop("examples", None)  # some of them may be what is allowed now
            entries[path] = plain
        rule = entries[path]
        before = rule.get("unless")
        rule["unless"] = f"({before}) || ({proposal.condition})" if before else proposal.condition
    return entries


def _replay_layer(
    compiled: CompiledPolicy, layer: str, suggestion: GrantSuggestion, files: Sequence[Path]
) -> None:
    """Replay the journals with and without the layer, and note what would newly be allowed."""
    proposed = compile_layer(layer)
    if proposed is None:
        suggestion.error = "the proposed rules do not fit the policy"
        return
    replay = Replay(proposed, observe=False, labels=None, baseline=use_replay_key(compiled))
    for file in files:
        for trace in Reader().iter_files(file):
            replay.add(trace)
    baseline = replay.finish().baseline
    if baseline is not None:
        suggestion.newly_allowed = baseline.newly_allowed
        suggestion.newly_refused = baseline.newly_refused.calls
