"""The same calls through policyguard and its peers, each in a process and environment of its own.

    python -m benchmarks.peers [--quick]

The first run installs the peers from the package index, below `benchmarks/.peers`. What cannot be
installed is left out, and the table says why.
"""

from __future__ import annotations

import argparse

from benchmarks.measure import Block, Report, Taken, interleave, table
from benchmarks.peers.catalog import PEERS, Peer
from benchmarks.peers.process import AbsentError, Process

OURS = PEERS[1].name
STATELESS = PEERS[2].name


def told(taken: Taken, running: dict[str, Process], absent: dict[str, str]) -> str:
    """One row a peer."""
    rows = [_row(peer, taken, running, absent.get(peer.name, "")) for peer in PEERS]
    heads = "system|version|rules|check µs|record µs|both µs|÷ ours with rules|÷ our rules alone"
    return table([*heads.split("|"), "admitted", "does", "does not"], rows)


def _row(peer: Peer, taken: Taken, running: dict[str, Process], absent: str) -> list[object]:
    if absent:
        cells: list[object] = ["–", peer.rules, f"left out: {absent}", *["–"] * 5]
    else:
        name = peer.name
        cells = [running[name].version, peer.rules or "–"]
        cells += [taken.spread(name, figure) for figure in ("check", "record", "pair")]
        cells += [taken.ratio(name, other, "pair") for other in (OURS, STATELESS)]
        cells.append(f"{100 * taken.spread(name, 'admitted').median:.0f} %")
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
        except AbsentError as error:
            absent[peer.name] = str(error)
    report = Report("peers", "policyguard and its peers")
    blocks: dict[str, Block] = dict(running)
    taken = interleave(blocks, rounds)
    for process in running.values():
        process.close()
    report.add(
        f"Medians over {rounds} blocks of 10 to 100 calls, quartiles in brackets: a search with "
        "three small arguments, 2 % failures, and the same 15 rules, none of which matches."
    )
    report.add(told(taken, running, absent))
    report.spreads(taken)
    report.figures["left out"] = absent
    report.write()


if __name__ == "__main__":
    main()
