"""A policy to start from: it extends a pack, and shows as comments what can be changed in it."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.report.policy.annotated import AnnotatedValue, yaml_lines

_SECTIONS = {
    "params": "Named values.",
    "limits": "Loops, failures and polling. `none` switches a kind off where it stands.",
    "budgets": "Totals and rates.",
    "rules": "What is judged before a call.",
    "result_rules": "What is judged before the model sees a result.",
    "learn": "What failures teach.",
    "radius": "How many targets one call may touch.",
}
"""What is written out of a pack; the rest of it is vocabulary."""


def render_starter_policy(pack: str, shown: AnnotatedValue, *, only_advises: bool) -> str:
    """The text of a policy that extends `pack`, which is `shown` and may refuse nothing itself."""
    return "\n".join(_lines(pack, shown, only_advises=only_advises)) + "\n"


def _lines(pack: str, shown: AnnotatedValue, *, only_advises: bool) -> Iterator[str]:
    yield "# What an agent's tool calls may do. `policyguard lint` checks this file, `policyguard"
    yield "# policy show` shows it with all that it inherits, and `policyguard simulate` replays"
    yield "# recorded runs under it."
    yield "policyguard: 1"
    if only_advises:
        yield f"# policyguard: ignore[lint/refuses-nothing] {pack} does no more than advise"
    yield "name: my-agent"
    yield f"description: {pack}, and what this agent needs besides"
    yield f"extends: [{pack}]"
    yield ""
    yield "# What this agent's own tools may cost, and must not do. Put in its tools' names:"
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
    yield f"# What follows is what `{pack}` says."
    yield "# To change an entry, write it above with other values; to take one away, name it"
    yield "# with a reason: disable: {limits/default/repeat: our tools never repeat}"
    sections = shown.value if isinstance(shown.value, dict) else {}
    for section, meaning in _SECTIONS.items():
        if section in sections:
            yield ""
            yield f"# {meaning}"
            yield from (f"# {line}" for line in yaml_lines(section, sections[section]))
