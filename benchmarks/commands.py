"""What rules about shell commands add to a check, and what SQL costs.

    python -m benchmarks.commands [--quick]

Each call has its own command of 190 to 220 characters, so that nothing is answered from a cache.
The figures in microseconds are differences to the same calls under `core` alone.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import Block, Measurements, Report, Spread, interleave, table
from benchmarks.timing import TimedBlocks, time_session
from benchmarks.workload import Call
from policyguard import Guard

SIZE = 100
RULES = """
rules:
  no-delete: {commands: [rm -r|-R|--recursive -f|--force]}
  no-force: {commands: [git push --force|-f, git push ** main|master]}
  no-pipe: {commands: [curl|wget | sh|bash]}
  no-chmod: {commands: [chmod 777]}
  no-disk: {commands: [dd > /dev/**, mkfs*]}
"""
SQL_RULE = """
rules:
  no-where: {when: "call.args.query.sql('postgres').exists(s, s.verb == 'DELETE' && !s.where)"}
"""
COMMANDS: dict[str, Callable[[int], str]] = {
    "no pattern can concern": lambda n: (
        f"cd /srv/app{n} && npm run build -- --mode production --out dist/{n} && "
        f"cp -a dist/{n}/index.html /srv/www/releases/{n}/index.html && "
        f"git status --short && tail -n 40 build/log{n}.txt"
    ),
    "a chain of plain commands": lambda n: (
        f"cd /srv/app{n} && rm -f build/output{n}.tmp && npm run build -- --mode production && "
        f"cp -a dist/{n}/index.html /srv/www/releases/{n}/index.html && "
        f"git status --short && tail -n 40 build/log{n}.txt"
    ),
    "quotes, pipes and files": lambda n: (
        f"cd /srv/app{n} && git commit -m 'Fix the parser of item {n}' --author \"Jo <jo@x.org>\" "
        f"&& git push origin feature/{n} 2>&1 | tail -n 5 > /tmp/out{n}.log; "
        f'echo "done {n}" && git log --oneline -n 3 | head -n 20'
    ),
    "loops and variables": lambda n: (
        f'for f in src/*.py; do if grep -q item{n} "$f"; then rm -f "$f.bak"; fi; done; '
        f'X=$(git rev-parse HEAD) && git push origin "$X":refs/heads/feature{n} 2>&1 | '
        f"tee /tmp/o{n}.log | tail -5 && echo ok"
    ),
}
QUERY = "SELECT email, name FROM customers c JOIN orders o ON o.id = c.id WHERE c.id = {} LIMIT 5"


def _shell_call(make: Callable[[int], str]) -> Callable[[int], Call]:
    return lambda number: Call("bash", {"command": make(number)}, "", None)


def _seen_call(make: Callable[[int], str]) -> Callable[[int], Call]:
    """Return calls whose command was seen before, but that differ, as they are no repeats."""
    return lambda number: Call("bash", {"command": make(7), "note": str(number)}, "", None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 40 if parser.parse_args().quick else 150
    blocks: dict[str, Block] = {}
    with tempfile.TemporaryDirectory() as folder:

        def add(name: str, rules: str, make: Callable[[int], Call]) -> None:
            file = Path(folder) / "policy.yaml"
            file.write_text(f"policyguard: 1\nname: commands\nextends: [core]\n{rules}", "utf-8")
            blocks[name] = TimedBlocks(time_session(Guard.load(file).session("s")), make, SIZE)

        for name, command in COMMANDS.items():
            add(f"{name}, core", "", _shell_call(command))
            add(f"{name}, rules", RULES, _shell_call(command))
        first = COMMANDS["quotes, pipes and files"]
        add("seen before, core", "", _seen_call(first))
        add("seen before, rules", RULES, _seen_call(first))
        queries = lambda number: Call("sql", {"query": QUERY.format(number)}, "", None)  # noqa: E731
        add("a new SQL query, core", "", queries)
        add("a new SQL query, rules", SQL_RULE, queries)
    gc.collect()
    gc.freeze()
    results = interleave(blocks, rounds)
    report = Report("commands", "Rules about commands and queries")
    report.add(f"Medians over {rounds} blocks of {SIZE} calls, quartiles in brackets.")
    heads = ["command", "check µs", "with the rules", "added µs", "ratio"]
    names = [*COMMANDS, "seen before", "a new SQL query"]
    report.add(table(heads, [_row(results, name) for name in names]))
    report.spreads(results)
    report.write()


def _row(results: Measurements, name: str) -> list[object]:
    core, rules = f"{name}, core", f"{name}, rules"
    pairs = zip(results.blocks[rules], results.blocks[core], strict=True)
    added = Spread.of(one["check"] - two["check"] for one, two in pairs)
    ratio = results.ratio(rules, core, "check")
    checks = [results.spread(which, "check") for which in (core, rules)]
    return [name, *checks, added, ratio]


if __name__ == "__main__":
    main()
