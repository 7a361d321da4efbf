"""Figures of a real replay for the HTML report: harm, catch, a baseline, hostile text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from policyguard.report.replay.figures import Figures, GateFigures
from policyguard.simulate import Replay, ReportSize, load
from policyguard.traces import Reader
from tests.simulate.recording import failed, lines, policy, read, write

HOSTILE = (
    "\x1b[2J\x00</style></script><script>document.title='owned'</script>"
    "<img src=x onerror=\"document.title='owned'\"> \" onmouseover=\"document.title='owned'\" x='"
    "<svg/onload=document.title='owned'> <!-- --> ]]> &lt;b&gt; &#60; </bdi></code></table>"
    "<base href=//evil.example><link rel=stylesheet href=//evil.example> javascript:alert(1) "
    "\u202eevil\u2066 \u05e9\u05dc\u05d5\u05dd \u0085"
)
"""What would break out of a text, an attribute, a stylesheet, SVG, or a line of letters."""

LONG = "x" * 100_000

RULES = """
rules:
  no-secrets:
    {tools: [read], when: "call.args.path.startsWith('/secret')", message: "not {call.args.path}"}
  slow-down:
    {tools: [list], effect: advise, message: "list less", when: "true"}
  ask-first:
    {tools: [send], effect: ask, message: "a person decides", when: "true"}
  stop:
    {tools: [wipe], effect: halt, message: "never", when: "true"}
"""
BEFORE = """
rules:
  no-sending:
    {tools: [send], message: "nothing is sent", when: "true"}
"""


def call(tool: str, **args: Any) -> dict[str, Any]:
    """A call of a tool that went well."""
    return {"tool": tool, "args": args, "text": "done"}


def figures(
    folder: Path, *, hostile: str = "plain", keep: ReportSize | None = None, compared: bool = True
) -> Figures:
    """A replay of sessions with `hostile` in whatever a recording can say."""
    evil = hostile
    reads = [read(f"/{number}") for number in range(80)]
    trace = write(
        folder / "runs.jsonl",
        lines(
            f"harmed {evil}",
            [read("/a"), call("list"), read(f"/secret {evil}"), call("send", to=evil), read("/b")],
            success=True,
        ),
        lines(
            "caught",
            [
                failed(f"run {evil}", f"{evil} boom", n=evil),
                failed("run", "no such file or directory: /x", n=2),
                call("wipe", what=evil),
                read("/c"),
            ],
            success=False,
        ),
        lines("long", [*reads, read("/secret"), *reads], success=False),
        lines("released", [read("/a"), call("send", to="b")], success=True),
        lines("fine", [read("/a")], success=True, timed=False),
        lines("unlabelled", [read("/a"), call("wipe")]),
        [f"no event {evil}".encode("utf-8", "replace").decode()],
    )
    replay = Replay(
        load(policy(folder / "new.yaml", RULES)),
        observe=False,
        labels=None,
        baseline=load(policy(folder / "old.yaml", BEFORE)) if compared else None,
        report_size=keep,
    )
    replay.add(Reader().read(trace))
    made = replay.finish()
    made.policy.name = f"new {evil}"
    made.gates = [
        GateFigures(f"policy.name == '{evil}'", True, {"policy.name": evil}),
        GateFigures("harm.rate > 0.9", False, {"harm.rate": "0.5"}),
        GateFigures("catch.rate > 0.1", None, {"catch.rate": "null"}, f"no such key {evil}"),
    ]
    return made
