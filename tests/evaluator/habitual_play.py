"""A play of an agent that often does again what it has just done."""

from __future__ import annotations

from typing import Any

from policyguard.compiler import CompiledPolicy
from policyguard.store.protocol import Store
from tests.guard.play import RARE_STEPS, Play

RESULTS = (
    '["a", "b"]',
    '["b", "a"]',
    "took 3.1s",
    "took 4.2s",
    "no match for a",
    "no match for b",
    "Error: 5 of 7 done",
    "Error: 6 of 7 done",
    "x" * 300,
)


class HabitualPlay(Play):
    """A play of an agent that often does again what it has just done, with the same result."""

    kinds = (*["check"] * 30, *["record"] * 30, *["answer"] * 4, *RARE_STEPS, "close")

    def __init__(self, stores: tuple[Store, Store], policy: CompiledPolicy, seed: int) -> None:
        super().__init__(stores, seed, policy)
        self.latest = [super().new_call()]
        self.result = "done"

    def new_call(self) -> tuple[str, dict[str, Any]]:
        again = self.random.random() < 0.6
        call = self.pick(*self.latest) if again else super().new_call()
        self.latest = [*self.latest[-2:], call]
        return call

    def pick_call(self) -> tuple[str, Any]:
        return self.calls[-1] if self.random.random() < 0.8 else super().pick_call()

    def pick_result(self) -> str:
        if self.random.random() < 0.5:
            is_own = self.random.random() < 0.4
            self.result = self.pick(*RESULTS) if is_own else super().pick_result()
        return self.result
