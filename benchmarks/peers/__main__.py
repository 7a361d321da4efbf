"""The same calls to policyguard and its peers, each in its own process and environment.

    python -m benchmarks.peers [--quick]

The first run installs the peers from the package index into `benchmarks/.peers`. A peer that cannot
be installed is left out; the table says why.
"""

from __future__ import annotations

import argparse

from benchmarks.measure import Block, Measurements, Report, interleave, table
from benchmarks.peers.catalog import PEERS, Peer
from benchmarks.peers.process import Process, UnavailableError

OURS = PEERS[1].name
STATELESS = PEERS[2].name


def format_table(results: Measurements, running: dict[str, Process], absent: dict[str, str]) -> str:
    """Return a table with a row per peer."""
    rows = [_row(peer, results, running, absent.get(peer.name, "")) for peer in PEERS]
    heads = "system|version|rules|check µs|record µs|both µs|÷ ours with rules|÷ our rules alone"
    return table([*heads.split("|"), "admitted", "does", "does not"], rows)


def _row(
    peer: Peer, results: Measurements, running: dict[str, Process], absent: str
) -> list[object]:
    if absent:
        cells: list[object] = ["–", peer.rules, f"left out: {absent}", *["–"] * 5]
    else:
        name = peer.name
        cells = [running[name].version, peer.rules or "–"]
        cells += [results.spread(name, figure) for figure in ("check", "record", "pair")]
        cells += [results.ratio(name, other, "pair") for other in (OURS, STATELESS)]
        cells.append(f"{100 * results.spread(name, 'admitted').median:.0f} %")
    return [peer.name, *cells, peer.does, peer.lacks]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    options = parser.parse_args()
    rounds = 40 if options.quick else 200
    running: dict[str, Process] = {}
    absent: dict[str, str] = {}
    for peer in PEERS:
        try:
            running[peer.name] = Process(peer)
        except UnavailableError as error:
            absent[peer.name] = str(error)
    report = Report("peers", "policyguard and its peers")
    blocks: dict[str, Block] = dict(running)
    results = interleave(blocks, rounds)
    for process in running.values():
        process.close()
    report.add(
        f"Medians over {rounds} blocks of 10 to 100 calls, quartiles in brackets: a search with "
        "three small arguments, 2 % failures, and the same 15 rules, none of which matches."
    )
    report.add(format_table(results, running, absent))
    report.spreads(results)
    report.figures["left out"] = absent
    report.write()


if __name__ == "__main__":
    main()
