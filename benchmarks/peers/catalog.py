"""The peers that policyguard is compared with, and their features.

All get the same calls: a search with three small arguments, 2 % of which fail. `rules` is how many
of the 15 rules of `benchmarks.rules` a peer gets: all if it supports rules over arguments.
"""

from __future__ import annotations

from typing import NamedTuple


class Peer(NamedTuple):
    """One contender: the module that runs it, and its requirements.

    `requirements` (names separated by spaces) are empty for this project's own environment.
    """

    name: str
    module: str
    requirements: str
    arguments: tuple[str, ...]
    rules: int
    does: str
    lacks: str


_ALL = "loops, failures, learning, budgets, rules"

PEERS = (
    Peer("policyguard, `core`", "policyguard_peer", "", ("core", "0"), 0, _ALL, "–"),
    Peer("policyguard, `core` and rules", "policyguard_peer", "", ("core", "15"), 15, _ALL, "–"),
    Peer(
        "policyguard, rules alone",
        "policyguard_peer",
        "",
        ("alone", "15"),
        15,
        "rules",
        "what `core` has",
    ),
    Peer(
        "aura-guard",
        "aura",
        "aura-guard",
        (),
        0,
        "loops, failing tools, cost, side effects",
        "rules over arguments, threads, learning that lasts",
    ),
    Peer(
        "agent-os-kernel, `PolicyEvaluator`",
        "agent_os_kernel",
        "agent-os-kernel pyyaml",
        (),
        15,
        "rules",
        "state: no loops, budgets, failures",
    ),
    Peer(
        "edictum, `evaluate`",
        "edict",
        "edictum[yaml]",
        ("evaluate",),
        15,
        "rules",
        "state, audit: it is a dry run",
    ),
    Peer(
        "edictum, `run`",
        "edict",
        "edictum[yaml]",
        ("run",),
        15,
        "rules, session limits, audit; runs the tool (one that does nothing)",
        "loops, failures, learning",
    ),
    Peer(
        "cedarpy", "cedar", "cedarpy", (), 15, "authorisation", "state: no loops, budgets, failures"
    ),
    Peer(
        "cel-expr-python",
        "cel_expr",
        "cel-expr-python",
        (),
        15,
        "15 expressions: the engine alone",
        "everything but expressions",
    ),
    Peer(
        "LangChain, two `ToolCallLimitMiddleware`",
        "lang_chain",
        "langchain",
        (),
        0,
        "counts of calls (the hooks alone, without the graph)",
        "rules, loops, failures",
    ),
)
"""In the order of the table. Ratios are to the second one."""
