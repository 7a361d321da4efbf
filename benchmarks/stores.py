"""The cost of check and record without a store, with SQLite and with PostgreSQL.

    python -m benchmarks.stores [--database postgresql://…] [--quick]

Each store has a guard whose policy has a budget per session, and one whose budget is shared by all
that use the store. No journal is written. All contenders run in one process and take turns in
blocks of 100 calls. Without `--database`, an empty database that this may fill, PostgreSQL is left
out.
"""

from __future__ import annotations

import argparse
import functools
import gc
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.measure import Block, Report, interleave, table
from benchmarks.timing import TimedBlocks, time_session
from benchmarks.workload import call
from policyguard import Guard

BLOCK_SIZE = 100
POLICY = """\
policyguard: 1
name: stores
extends: [core]
journal: {durability: memory}
budgets:
  calls: {calls: 100000000, per: %s}
"""
STORES = ("no store", "SQLite", "PostgreSQL")
BUDGETS = {"per session": "session", "shared": "global"}


def add_blocks(folder: Path, database: str, guards: ExitStack) -> dict[str, Block]:
    """Return a block per store and kind of budget; `guards` closes their guards."""
    blocks: dict[str, Block] = {}
    for kind, scope in BUDGETS.items():
        file = folder / f"{scope}.yaml"
        file.write_text(POLICY % scope, "utf-8")
        for name, store in zip(STORES, (None, folder / scope / "store.db", database), strict=True):
            if store == "":
                continue
            guard = guards.enter_context(Guard.load(file, store=store))
            session = guards.enter_context(guard.session(f"benchmark-{scope}"))
            make_call = functools.partial(call, failing=2)
            blocks[f"{name}, {kind}"] = TimedBlocks(time_session(session), make_call, BLOCK_SIZE)
    return blocks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument(
        "--database", default="", metavar="URL", help="an empty PostgreSQL database to fill"
    )
    options = parser.parse_args()
    rounds = 60 if options.quick else 200
    report = Report("stores", "Stores and shared budgets")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as guards:
        blocks = add_blocks(Path(folder), options.database, guards)
        gc.collect()
        gc.freeze()  # so that the collector skips other contenders' objects
        results = interleave(blocks, rounds)
    report.add(
        f"Medians over {rounds} blocks of {BLOCK_SIZE} calls, quartiles in brackets; "
        "`core` and one budget, no journal."
    )
    rows = []
    for name in blocks:
        base = f"{STORES[0]}, {name.partition(', ')[2]}"
        times = [results.spread(name, figure) for figure in ("check", "record", "pair")]
        rows.append([name, *times, "–" if name == base else results.ratio(name, base, "check")])
    heads = ["contender", "check µs", "record µs", "both µs", "check ÷ no store"]
    report.add(table(heads, rows))
    report.spreads(results)
    report.write()


if __name__ == "__main__":
    main()
