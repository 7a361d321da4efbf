"""Render a starter policy: it extends a pack, whose entries are comments."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.report.policy.annotated import AnnotatedValue, yaml_lines

_SECTIONS = {
    "params": "Named values.",
    "limits": "Loops, failures and polling. `none` switches a limit off.",
    "budgets": "Totals and rates.",
    "rules": "Checks before a call.",
    "result_rules": "Checks before the model sees a result.",
    "learn": "Bans learned from failures.",
    "radius": "How many targets one call may have.",
}
"""The sections of a pack to show."""


def render_starter_policy(pack: str, shown: AnnotatedValue, *, only_advises: bool) -> str:
    """Render a policy that extends `pack`, whose merged sections are `shown`."""
    return "\n".join(_lines(pack, shown, only_advises=only_advises)) + "\n"


def _lines(pack: str, shown: AnnotatedValue, *, only_advises: bool) -> Iterator[str]:
    yield "# What an agent's tool calls may do. `policyguard lint` checks this file, `policyguard"
    yield "# policy show` prints it with everything it inherits, and `policyguard simulate` replays"
    yield "# recorded runs under it."
    yield "policyguard: 1"
    if only_advises:
        yield f"# policyguard: ignore[lint/refuses-nothing] {pack} only advises"
    yield "name: my-agent"
    yield f"description: {pack}, and rules for this agent"
    yield f"extends: [{pack}]"
    yield ""
    yield "# Limits for this agent's own tools. Replace the tool names:"
    yield "#"
    yield "# budgets:"
    yield "#   web-searches: {tools: [web_search], calls: 20, per: turn}"
    yield "#   spend: {cost: 2.00, per: session}"
    yield "#"
    yield "# rules:"
    yield "#   large-refunds-need-a-person:"
    yield "#     tools: [process_refund]"
    yield "#     when: call.args.amount > 200"
    yield "#     effect: ask"
    yield '#     message: "a refund of {call.args.amount} needs a person"'
    yield "#     examples:"
    yield "#       match: [process_refund: {amount: 250}]"
    yield "#       no_match: [process_refund: {amount: 20}]"
    yield ""
    yield f"# The entries of `{pack}`."
    yield "# To change an entry, write it above with other values. To remove one, disable it with"
    yield "# a reason: disable: {limits/default/repeat: our tools never repeat}"
    sections = shown.value if isinstance(shown.value, dict) else {}
    for section, meaning in _SECTIONS.items():
        if section in sections:
            yield ""
            yield f"# {meaning}"
            yield from (f"# {line}" for line in yaml_lines(section, sections[section]))
