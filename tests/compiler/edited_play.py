"""A play under a policy that was edited, and what is known of calls under it."""

from __future__ import annotations

import re
import zlib
from typing import Any

from policyguard import Session
from policyguard.cel import Program
from policyguard.compiler import CompiledPolicy
from policyguard.engines.fingerprint import NotJsonError
from policyguard.evaluator.activation import Activation
from policyguard.evaluator.attempt import Attempt
from policyguard.model.errors import ExpressionError
from tests.compiler.drawn_layers import draw_call
from tests.guard.play import Play, in_memory, number_ids

PREVIEWS = 16


EXAMPLES = {
    "string": "vip",
    "int": 3,
    "double": 1.5,
    "bool": True,
    "list(string)": ["team", "b"],
    "timestamp": "2026-01-31T09:30:00Z",
}
"""A value of each type of tags."""
VALUES = (
    "a",
    "/srv/a.py",
    "git push --force",
    "https://x.org/a",
    "pw-123",
    0,
    1,
    3,
    1.5,
    True,
    None,
)


class EditedPlay(Play):
    """A play whose calls are drawn for policies, some with names and texts of this one."""

    kinds = (*["check"] * 8, *["record"] * 6, "batch", "answer", "preview", "turn", "wait", "look")

    def __init__(self, policy: CompiledPolicy, text: str) -> None:
        super().__init__(in_memory(), zlib.crc32(text.encode("utf-8", "surrogatepass")), policy)
        self.tags = {name: EXAMPLES[tag.type] for name, tag in policy.policy.tags.items()}
        tools = " ".join(re.findall(r"tools: ?[\[{][^\]]*|^ +[\w*]+: \{|examples.*", text, re.M))
        self.tools = [*dict.fromkeys(re.findall(r"[a-z]\w+", tools)), "read", "edit", "bash"]
        self.fields = [*dict.fromkeys(re.findall(r"args\.(\w+)", text)), "path", "n", "command"]
        self.values = [*dict.fromkeys(re.findall(r"'([^'\n]{1,30})'", text)), *VALUES]
        self.latest = draw_call(self.pick)

    def session(self, name: str) -> Session:
        if name not in self.sessions:
            parent = self.session("s") if name == "u" else None
            self.sessions[name] = self.guards[0].session(
                name,
                parent=parent,
                agent="a",
                user="ann",
                cwd="/srv",
                tags=self.tags,
                roles=["lead"],
            )
        return self.sessions[name]

    def draw_call(self) -> tuple[str, dict[str, Any], dict[str, Any]]:
        if self.random.random() < 0.6:
            return draw_call(self.pick)
        args = {self.pick(*self.fields): self.pick(*self.values) for _ in range(2)}
        return self.pick(*self.tools), args, {}

    def new_call(self) -> tuple[str, dict[str, Any]]:
        if self.random.random() < 0.5:
            self.latest = self.draw_call()
        return self.latest[:2]

    def look(self, policy: CompiledPolicy) -> None:
        """Write down what is known of some calls, and what would be decided."""
        programs = [(".".join(map(str, path)), program) for path, program in policy.expressions]
        evaluator = policy.evaluator
        for _ in range(PREVIEWS):
            tool, args, more = self.draw_call()
            session = self.session("s")
            decided = self.describe(session.preview(tool, args, **more))
            attempt = Attempt(tool, args, self.now, session._state, self.now, **more)
            try:
                evaluator.prepare(attempt)
            except NotJsonError as error:
                decided += str(error)
            activation = Activation(attempt, evaluator.activation_context, self.now)
            known = [attempt.class_, attempt.classes, attempt.targets, attempt.state_changing]
            found = [f"{name}: {evaluate(program, activation)}" for name, program in programs]
            names = ("command", "paths", "urls", "strings", "text")
            fields = [f"{name}: {getattr(activation, name, None)!r}" for name in names]
            self.lines.append(
                number_ids("\n".join([decided, str(known), *fields, *found]), self.names)
            )


def evaluate(program: Program, activation: Activation) -> str:
    try:
        return repr(program.function(activation))
    except (ExpressionError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
