"""Draws recordings, labels for them, and policies to replay them under."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from policyguard.compiler import compile_policy
from tests.evaluator.drawn_policies import draw_valid_policy
from tests.evaluator.habitual_play import RESULTS, HabitualPlay
from tests.guard.play import in_file

from .recording import START

SECOND = 10**9
JOURNALS = (
    {},
    {"args": "keep", "results": "keep"},
    {"args": "drop", "results": "drop"},
    {"args": "hash", "results": "mask"},
)


class Drawing:
    """What is drawn for one replay. `pick` gives the same numbers in all versions of Python."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self.seed = seed

    def pick(self, *choices: Any) -> Any:
        return choices[int(self._random.random() * len(choices))]

    def chance(self, share: float) -> bool:
        return self._random.random() < share

    def write_policy(self, folder: Path, number: int) -> Path:
        """Write a policy of drawn parts, and what its journals keep."""
        folder.mkdir()
        draw_valid_policy(folder, 100 * self.seed + number)
        file = folder / "policy.yaml"
        policy = json.loads(file.read_text()) | {"name": folder.name}
        policy["journal"] = self.pick(*JOURNALS)
        file.write_text(json.dumps(policy))
        return file

    def write_journals(self, folder: Path, policy: Path) -> None:
        """Play under a policy, with a store and journals in a folder."""
        folder.mkdir()
        HabitualPlay(in_file(folder), compile_policy(policy), self.seed).go(60)

    def write_recording(self, file: Path, count: int) -> None:
        """Write sessions as another program may record them, some of them badly."""
        text = [line for number in range(count) for line in self._record(f"{file.stem}-{number}")]
        if self.chance(0.3):  # sessions that ran at once
            text.sort(key=lambda line: int(line.get("at", START)))
        lines = [json.dumps(line) for line in text]
        while self.chance(0.5):
            broken = ("{", "[]", '{"event": "admitted"}', '{"event": "unheard"}', "", "\ufffd")
            lines.insert(int(self._random.random() * len(lines)), self.pick(*broken))
        file.write_text("".join(f"{line}\n" for line in lines))

    def _record(self, name: str) -> list[dict[str, Any]]:
        at, is_timed, is_harness = START, self.chance(0.9), self.chance(0.2)
        events: list[dict[str, Any]] = []

        def add(event: str, **fields: Any) -> None:
            nonlocal at
            at += self.pick(0, 1, 1, 3, 20) * SECOND
            line = {"event": event, "session": name, **fields}
            events.append(line | ({"at": at} if is_timed else {}))

        if self.chance(0.9):
            agent = {"agent": self.pick("a", "b"), "user": self.pick("ann", "bo")}
            add("started", **(agent if self.chance(0.7) else {}), tags={"tier": self.pick("free")})
        calls: list[str] = []
        last: dict[str, Any] = {}
        for number in range(self.pick(0, 1, 4, 12, 25)):
            if self.chance(0.1):
                add("turn_started")
            if self.chance(0.05):
                add("spent", tokens=self.pick(5, 60), cost=self.pick(0.1, 0.9), model_calls=1)
            if not last or self.chance(0.5):
                args = {"path": self.pick(*"aabc"), "n": self.pick(0, 1, 3)}
                tool = self.pick("read", "read", "edit", "poll", "send", "deploy", "test", "x")
                last = {"tool": tool, "args": args}
            if self.chance(0.05):
                add("refused", call=f"r{number}", **last, effect=self.pick("block", "ask"))
                continue
            add("admitted", call=f"c{number}", **last)
            calls.append(f"c{number}")
            if self.chance(0.95):
                add("completed", call=self.pick(*calls[-2:]), **self._result(is_harness=is_harness))
        if self.chance(0.8):
            add("closed", **self.pick({}, {"success": True}, {"success": False}))
        return events

    def _result(self, *, is_harness: bool) -> dict[str, Any]:
        text = self.pick(*RESULTS, "done", "lost 1", "lost 2", "down")
        result: dict[str, Any] = {"text": text}
        if self.chance(0.8):
            result["ok"] = not text.startswith(("lost", "down"))
        elif self.chance(0.5):
            result |= {"error": text, "known": "inferred"}
        if is_harness and self.chance(0.4):
            result |= {"meta": {"infra": True}}
        if self.chance(0.2):
            result |= {"cost": 0.4, "tokens": 30, "duration": 2.5, "score": self.pick(1.0, 2.0)}
        return result

    def write_labels(self, file: Path, *, all_of: int) -> None:
        """Label sessions by their names, their files, or both; some of them do not exist."""
        labels: list[dict[str, Any]] = [
            {"session": f"one-{number}", "success": self.pick(True, True, False, None)}
            for number in range(all_of)
            if self.chance(0.7)
        ]
        labels += [{"session": name, "success": self.pick(True, False)} for name in ("s", "t")]
        labels += [{"file": "alone.jsonl", "success": True}] if self.chance(0.5) else []
        labels += [{"session": "absent", "success": False}] if self.chance(0.5) else []
        two = {"session": "two-0", "file": "two.jsonl", "success": self.pick(True, False)}
        labels += [two] if self.chance(0.5) else []
        file.write_text("".join(f"{json.dumps(label)}\n" for label in labels))
