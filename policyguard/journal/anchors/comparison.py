"""Findings about one file: its anchors compared with an intact chain, its key, its emptiness."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from policyguard.journal.chain import ChainPosition
from policyguard.journal.findings import VerifyFinding, make_finding
from policyguard.store.protocol import Anchor


def describe_empty(file: Path, tail: bytes, anchors: list[Anchor]) -> VerifyFinding:
    """Describe a file without a complete line."""
    if anchors:
        anchored = max(anchor.count for anchor in anchors)
        message = f"has no line, but {anchored} were anchored"
        return make_finding("journal/cut-tail", file, message)
    if tail:
        return make_finding("journal/torn-line", file, f"{len(tail)} bytes of a first line", 1)
    return make_finding("journal/empty", file, "has no line")


def compare_anchors(
    file: Path, position: ChainPosition, anchors: list[Anchor], hash_at: dict[int, str], tail: bytes
) -> Iterator[VerifyFinding]:
    """Compare an intact chain with its anchors. `tail` follows its last complete line."""
    own = [anchor for anchor in anchors if anchor.chain == position.chain]
    lengths: dict[str, int] = {}
    for anchor in anchors:
        if anchor.chain != position.chain:
            lengths[anchor.chain] = max(anchor.count, lengths.get(anchor.chain, 0))
    for length in lengths.values():
        name = f"session {anchors[0].session!r:.80}"
        message = f"differs from a chain of {name} of which {length} lines were anchored"
        yield make_finding("journal/foreign-chain", file, message)
    if not own:
        return
    anchored = max(anchor.count for anchor in own)
    if position.count < anchored:
        message = f"has {position.count} lines, but {anchored} were anchored"
        if tail:  # an anchored line was complete, so this one was cut
            message += f"; {len(tail)} bytes of one more"
        yield make_finding("journal/cut-tail", file, message, position.count)
    reached = [anchor for anchor in own if anchor.count <= position.count]
    wrong = [anchor.count for anchor in reached if hash_at.get(anchor.count) != anchor.hash]
    if wrong:
        message = f"is intact, but line {min(wrong)} differs from the anchored one"
        yield make_finding("journal/rewritten", file, message, min(wrong))
    beyond = position.count - anchored
    if beyond > 0:
        message = f"{beyond} line{'' if beyond == 1 else 's'} beyond the last anchor"
        yield make_finding("journal/unanchored", file, message, anchored + 1)


def describe_key(file: Path, key_id: str) -> VerifyFinding:
    """Describe a file whose hashes need another key."""
    if not key_id:
        return make_finding("journal/no-key", file, "was written without a key", 1)
    message = f"was written with another key (`{key_id}`), or needs one"
    return make_finding("journal/key", file, message, 1)
