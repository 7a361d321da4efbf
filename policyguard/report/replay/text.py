"""Render a replay's figures as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.report.escape import for_terminal
from policyguard.report.replay import phrases
from policyguard.report.replay.assessment import (
    assess_harm,
    describe_change,
    describe_refusals,
    sort_rules_by_harm,
)
from policyguard.report.replay.figures import (
    BaselineFigures,
    ChangedCall,
    DirectionFigures,
    Figures,
    RuleFigures,
    RunFigures,
)
from policyguard.report.style import PLAIN, Style

MAX_ITEMS = 5
"""Refused sessions, signatures and errors to list, unless all are asked for."""
_ALL = 1 << 30


def render_text(figures: Figures, style: Style = PLAIN, *, verbose: bool = False) -> str:
    """Render the report that `policyguard simulate` prints.

    It begins with the result, and ends with it if a terminal cannot show all of it. With `verbose`
    it lists all sessions, errors and skipped places that the figures hold.
    """
    text = style.join(_lines(figures, style, None if verbose else MAX_ITEMS))
    if not style.is_beyond_screen(text):
        return text
    return "\n".join([text, style.join(["", *_result(figures, style)])])


def _lines(figures: Figures, style: Style, max_items: int | None) -> Iterator[str]:
    traces, policy = figures.traces, figures.policy
    yield style.strong(
        f"policy {for_terminal(phrases.policy(policy), 120)}, replayed in mode {policy.mode}"
    )
    yield ""
    yield from _result(figures, style)
    yield ""
    formats = ", ".join(f"{name} {count}" for name, count in traces.formats.items())
    yield (
        f"read    {phrases.count(traces.files, 'file')}{f' ({formats})' if formats else ''}: "
        f"{phrases.sessions(traces)}, {phrases.count(traces.calls, 'call')}; "
        f"{phrases.count(traces.errors.explicit, 'recorded failure')}"
    )
    for caveat in phrases.caveats(figures, skips=" (--verbose names them)" if max_items else ""):
        yield f"        {style.warning(caveat)}"
    yield ""
    yield "calls by effect"
    effects = figures.effects
    counts = [f"{name} {getattr(effects, name)}" for name in effects.__struct_fields__]
    if traces.unknown:
        counts.append(f"unknown {traces.unknown}")
    yield "  " + "   ".join(counts)
    yield from _rules(figures, style, max_items)
    yield from _refused(figures, style, max_items)
    yield from _untouched(figures, max_items)
    yield from _errors(figures, style, max_items)
    if figures.baseline is not None:
        yield from _compared(figures, figures.baseline, style)
    yield from _skipped(figures, max_items)
    yield ""
    yield from _outcomes(figures, style)
    yield from _gates(figures, style)


def _result(figures: Figures, style: Style) -> Iterator[str]:
    found = assess_harm(figures.harm, figures.rules, figures.labels)
    text = for_terminal(found.text)
    text = style.bad(text) if found.kind == "hit" else style.strong(text)
    yield f"result  {text} {found.confidence}"
    if change := describe_change(figures):
        yield f"change  {change}"
    yield f"refused {for_terminal(describe_refusals(figures))}"


def _rules(figures: Figures, style: Style, max_items: int | None) -> Iterator[str]:
    if figures.rules:
        width = max(len(_rule(rule)) for rule in figures.rules)
        yield ""
        head = f"  {'by':<{width}}  {'effect':<6} {'harmed':>6} {'hits':>6} {'sessions':>8}"
        gap = " " if style.narrow else "  "
        yield f"{head}{gap}{'share' if style.narrow else 'share, 95 % interval'}"
        for rule in sort_rules_by_harm(figures.rules):
            harmed = f"{rule.first_succeeded:>6}"
            share = f"{style.bar(rule.rate or 0.0)} {phrases.short_rate(rule.rate, rule.ci95)}"
            if style.narrow:
                share = phrases.rate(rule.rate, None)
            yield (
                f"  {_rule(rule):<{width}}  {rule.effect:<6} "
                f"{style.bad(harmed) if rule.first_succeeded else harmed} "
                f"{rule.hits:>6} {rule.sessions:>8}{gap}{share}"
            )
        yield style.faint("  harmed: successful sessions in which it was the first to refuse")
    for sentence in phrases.absent_tools(figures, max_items or _ALL):
        yield style.warning(f"  {for_terminal(sentence, 160)}")
    if quiet := phrases.never_fired(figures, max_items or _ALL):
        yield style.faint(f"  {for_terminal(quiet, 400)}")
    for error in figures.eval_errors:
        times = "of the sessions" if error.id == "tags" else "undecided"
        hits = phrases.count(error.hits, "time")
        yield f"  {error.id}: {hits} {times}: {for_terminal(error.error, 100)}"


def _rule(rule: RuleFigures) -> str:
    return for_terminal(f"{rule.id} (observed)" if rule.observed else rule.id, 60)


def _refused(figures: Figures, style: Style, max_items: int | None) -> Iterator[str]:
    refused = phrases.sort_by_harm(figures.sessions)
    if not refused:
        return
    yield ""
    yield "refused (all later calls are counterfactual: the agent would have acted differently)"
    for run in refused[:max_items]:
        yield f"  {_named(run, style)}"
        yield (
            f"    call {(run.first_refusal or 0) + 1} of {run.calls}, "
            f"`{for_terminal(run.first_tool or '', 60)}`: "
            f"{for_terminal(run.first_message or '', 120)}"
        )
        after = run.calls_after_first_refusal
        later = f", {phrases.count(after, 'recorded call')} after it" if after else ""
        yield (
            f"    by {for_terminal(run.first_rule or '', 60)}; "
            f"{phrases.count(run.refused, 'call')} refused{later}"
        )
    left = figures.refused.count - len(refused[:max_items])
    if left > 0:
        where = "--sessions" if max_items is None else "--verbose"
        yield f"  … and {phrases.count(left, 'more session', 'more sessions')} (see {where})"


def _named(run: RunFigures, style: Style) -> str:
    text = for_terminal(phrases.session_name(run.id, run.file), 90) + phrases.outcome(run.success)
    return style.bad(text) if run.success else text


def _untouched(figures: Figures, max_items: int | None) -> Iterator[str]:
    untouched = figures.refused.of - figures.refused.count
    yield ""
    of = figures.traces.sessions - figures.traces.without_calls
    yield f"untouched: {untouched} of {phrases.count(of, 'session')} with a call"
    runs = [run for run in figures.sessions if run.calls and not run.refused and not run.unknown]
    if max_items is None or len(runs) <= max_items:
        for run in runs:
            name = for_terminal(phrases.session_name(run.id, run.file), 90)
            yield f"  {name}{phrases.outcome(run.success)}, {phrases.count(run.calls, 'call')}"


def _outcomes(figures: Figures, style: Style) -> Iterator[str]:
    labels, harm, catch = figures.labels, figures.harm, figures.catch
    if not harm.succeeded and not catch.failed:
        yield "harm and catch: unknown, because no session has a known outcome (see --labels)"
    else:
        text = f"harm    {phrases.harm(harm)}"
        yield style.bad(text) if harm.refused else text
        yield f"catch   {phrases.catch(catch)}"
    if labels.disagree or (labels.matched and not labels.unmatched):
        count = phrases.count(labels.matched, "label")
        yield f"labels  {count} matched, {phrases.label_conflicts(labels)}"


def _errors(figures: Figures, style: Style, max_items: int | None) -> Iterator[str]:
    coverage = figures.signatures
    if not coverage.matched.of and not coverage.redacted:
        return
    yield ""
    redacted = f"; {coverage.redacted} more without text" if coverage.redacted else ""
    yield f"errors matched by a signature: {phrases.share(coverage.matched)}{redacted}"
    for signature in coverage.signatures[:max_items]:
        part = style.bar(signature.hits / coverage.matched.of)
        yield f"  {part} {signature.hits:>6}  {for_terminal(signature.id, 60)}"
    if more := len(coverage.signatures) - len(coverage.signatures[:max_items]):
        yield f"  … and {phrases.count(more, 'more signature', 'more signatures')} (see --verbose)"
    if coverage.unmatched:
        yield f"most frequent of the {phrases.count(coverage.kinds, 'unmatched kind')}"
    for kind in coverage.unmatched[:max_items]:
        part = style.bar(kind.hits / coverage.matched.of)
        tool = f"`{for_terminal(kind.tool, 30)}` " if kind.tool else ""
        yield f"  {part} {kind.hits:>6}  {tool}{for_terminal(kind.error, 100)}"


def _compared(figures: Figures, baseline: BaselineFigures, style: Style) -> Iterator[str]:
    yield ""
    yield style.strong(f"compared with {phrases.policy(baseline.policy)}")
    for word, changes in (
        ("newly refused", baseline.newly_refused),
        ("newly allowed", baseline.newly_allowed),
    ):
        text = f"  {word}  {phrases.direction(changes)}"
        yield style.bad(text) if changes.succeeded and word == "newly refused" else text
    yield f"  refused earlier in {baseline.earlier} of the sessions, later in {baseline.later}"
    if baseline.unknown:
        yield f"  undetermined for {phrases.count(baseline.unknown, 'session')}"
    yield f"  harm   now {phrases.rate(figures.harm.rate, figures.harm.ci95)}"
    yield f"         was {phrases.rate(baseline.harm.rate, baseline.harm.ci95)}"
    yield f"  catch  now {phrases.rate(figures.catch.rate, figures.catch.ci95)}"
    yield f"         was {phrases.rate(baseline.catch.rate, baseline.catch.ci95)}"
    yield from _examples("newly refused, for example", baseline.newly_refused, style)
    yield from _examples("newly allowed, for example", baseline.newly_allowed, style)


def _examples(title: str, changes: DirectionFigures, style: Style) -> Iterator[str]:
    if changes.examples:
        yield f"  {title}"
    for example in changes.examples:
        yield from _example(example, style)


def _example(example: ChangedCall, style: Style) -> Iterator[str]:
    call = example.call
    name = for_terminal(phrases.session_name(example.session, example.file), 90)
    text = f"    {name}{phrases.outcome(example.success)}"
    yield style.bad(text) if example.success else text
    args = "arguments not recorded" if call.args is None else for_terminal(call.args, 80)
    yield f"      call {example.index + 1}, `{for_terminal(call.tool, 40)}` {args}"
    counterfactual = style.faint(" (counterfactual)") if call.counterfactual else ""
    yield (
        f"      by {for_terminal(example.rule or '', 60)}: "
        f"{for_terminal(example.message or '', 120)}{counterfactual}"
    )


def _skipped(figures: Figures, max_items: int | None) -> Iterator[str]:
    traces = figures.traces
    # If nothing could be read, the reasons are the result.
    if not traces.skips or (max_items is not None and traces.sessions):
        return
    shown = traces.skips[:max_items]
    yield ""
    yield f"skipped: {traces.skipped:,}"
    for skip in shown:
        location = f"{skip.file}:{skip.line}" if skip.line else skip.file
        yield f"  {for_terminal(location)}: {for_terminal(skip.reason, 160)}"
    if left := traces.skipped - len(shown):
        yield f"  … and {left:,} more" + ("" if max_items is None else " (see --verbose)")


def _gates(figures: Figures, style: Style) -> Iterator[str]:
    if figures.gates:
        yield ""
    for gate in figures.gates:
        text = f"--fail-on {for_terminal(gate.expression, 160)}: {for_terminal(phrases.gate(gate))}"
        yield text if gate.triggered is False else style.bad(text)
