"""Calls of tools in frameworks: checked, refused or run, and recorded with what the tool raised."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from policyguard.adapters.runs import calling
from policyguard.engines.fingerprint import result_text
from policyguard.guard.event_loop import run_blocking
from policyguard.guard.session import Session
from policyguard.guard.tools.results import mcp_fields
from policyguard.guard.tools.runner import arun_admitted, run_admitted
from policyguard.guard.tools.running_call import RunningCall
from policyguard.model.decision import Decision
from policyguard.model.effect import Effect
from policyguard.model.outcome import Recorded


class Approval(NamedTuple):
    """A user's yes: `by` and `labels` as in `Session.approve`."""

    by: str
    labels: Iterable[str] = ()

    @classmethod
    def read(cls, answer: Any, user: str) -> Approval | None:
        """Read a user's answer: `True`, or a mapping with `type` "approve", and `by` and `labels`.

        Anything else is a no. `user` is who has approved if the answer does not say.
        """
        answer = {"type": "approve"} if answer is True else answer
        if not isinstance(answer, Mapping) or answer.get("type") != "approve":
            return None
        return cls(answer.get("by") or user, answer.get("labels") or ())


class CallEnd(NamedTuple):
    """What the model is to see of a call.

    `value` is what the tool returned, as result rules leave it, or the text of a refusal or error,
    if the call has `failed`. `advice` is what `value` does not carry. `is_changed` is False if
    `value` is what the tool returned. `returned` is that as the framework has it, `error` is what
    the tool raised.
    """

    value: Any
    failed: bool = False
    advice: str = ""
    is_changed: bool = True
    returned: Any = None
    error: Exception | None = None

    @property
    def text(self) -> str:
        """All of it as one text."""
        fields = mcp_fields(self.value)
        if isinstance(self.value, str):
            text = self.value
        elif fields is not None and all("text" in block for block in fields["content"]):
            text = "\n".join(block["text"] for block in fields["content"])
        else:
            text = result_text(self.value)
        return f"{text}\n\n{self.advice}" if self.advice else text


Ask = Callable[[Decision], Approval | None]
"""Asks the framework's user about a call; None if they refuse, or cannot be asked."""


class GuardedCall:
    """One call of a tool, that `run` runs, or the framework between `check` and `record`.

    `batch` is an id that the calls of one message share, `server` the tool server's name. Methods
    that begin with `a` are for event loops, which they do not block.
    """

    def __init__(
        self,
        session: Session,
        tool: str,
        args: Mapping[str, Any],
        *,
        batch: str | None = None,
        server: str = "",
    ) -> None:
        self.session = session
        self._check = partial(session.check, tool, args, batch=batch, server=server)
        self._acheck = partial(session.acheck, tool, args, batch=batch, server=server)
        self.decision: Decision

    def check(self, ask: Ask | None = None) -> Decision:
        """Decide on the call. If no approver of the guard could be asked, `ask` is."""
        self.decision = self._check()
        if ask is not None and self.needs_approval and (approval := ask(self.decision)):
            self.approve(approval)
        return self.decision

    async def acheck(self, ask: Ask | None = None) -> Decision:
        """Do as `check` does."""
        self.decision = await self._acheck()
        if ask is not None and self.needs_approval and (approval := ask(self.decision)):
            await run_blocking(self.session.guard, partial(self.approve, approval))
        return self.decision

    @property
    def needs_approval(self) -> bool:
        """Whether the framework is to ask its user: the guard has no approver that was asked."""
        is_asked = self.decision.effect is Effect.ASK and not self.decision.allowed
        return is_asked and self.session.guard._approver is None

    def approve(self, approval: Approval) -> Decision:
        """Approve the call, and decide on it again."""
        self.session.approve(self.decision, by=approval.by, labels=approval.labels)
        self.decision = self._check()
        return self.decision

    def run(
        self,
        fn: Callable[[], Any],
        *,
        ask: Ask | None = None,
        read: Callable[[Any], Any] | None = None,
        pauses: tuple[type[BaseException], ...] = (),
    ) -> CallEnd:
        """Check the call, run it if it is admitted, and record its end.

        `read` returns what the model would see of what `fn` returns: text, an MCP result, or any
        structure. What `fn` raises is recorded and becomes a text for the model, but for `pauses`,
        by which the framework says that it will make the call again: the call is then released. It
        is raised if it is no `Exception` (the call was cancelled), or cannot be recorded.
        """
        if not self.check(ask):
            return CallEnd(self.decision.message, failed=True)
        running = _Running(self, read, pauses)
        try:
            value = run_admitted(running.call, partial(running.begin, fn))
        except Exception as error:  # noqa: BLE001 - a tool may raise anything
            return running.fail(error)
        return running.finish(value)

    async def arun(
        self,
        fn: Callable[[], Awaitable[Any]],
        *,
        ask: Ask | None = None,
        read: Callable[[Any], Any] | None = None,
        pauses: tuple[type[BaseException], ...] = (),
    ) -> CallEnd:
        """Do as `run` does."""
        if not await self.acheck(ask):
            return CallEnd(self.decision.message, failed=True)
        running = _Running(self, read, pauses)
        try:
            value = await arun_admitted(running.call, partial(running.abegin, fn))
        except Exception as error:  # noqa: BLE001 - a tool may raise anything
            return running.fail(error)
        return running.finish(value)

    def record(self, **result: Any) -> CallEnd:
        """Record the end of a call that the framework has run; see `Session.record`."""
        recorded = self.session.record(self.decision, **result)
        if result.get("error") is not None:
            return CallEnd(recorded.text, failed=True)
        return _end(recorded.result, result.get("result"), recorded)

    async def arecord(self, **result: Any) -> CallEnd:
        """Do as `record` does."""
        return await run_blocking(self.session.guard, partial(self.record, **result))


def as_result(content: Any, *, failed: bool) -> Any:
    """Return a text, or a list of texts and content blocks, as the result that it stands for.

    That is the text, or with blocks or a failure an MCP result.
    """
    if isinstance(content, str) and not failed:
        return content
    parts = content if isinstance(content, list) else [content]
    blocks = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return {"content": blocks, "isError": failed}


class _Running:
    """A call while it runs: agents that start meanwhile are its session's sub-agents."""

    def __init__(
        self,
        guarded: GuardedCall,
        read: Callable[[Any], Any] | None,
        pauses: tuple[type[BaseException], ...],
    ) -> None:
        self.call = RunningCall(guarded.session, guarded.decision, pauses=pauses)
        self._session, self._read, self._pauses = guarded.session, read, pauses
        self._returned: Any = None
        self._shown: Any = None

    def begin(self, fn: Callable[[], Any]) -> Any:
        with calling(self._session):
            return self._keep(fn())

    async def abegin(self, fn: Callable[[], Awaitable[Any]]) -> Any:
        with calling(self._session):
            return self._keep(await fn())

    def _keep(self, returned: Any) -> Any:
        self._returned = returned
        self._shown = returned if self._read is None else self._read(returned)
        return self._shown

    def fail(self, error: Exception) -> CallEnd:
        """Return the end of a call that raised, or raise it again."""
        if self.call.recorded is None or isinstance(error, self._pauses):
            raise error
        return CallEnd(self.call.recorded.text, failed=True, error=error)

    def finish(self, value: Any) -> CallEnd:
        end = _end(value, self._shown, self.call.recorded)
        return end._replace(returned=self._returned)


def _end(value: Any, shown: Any, recorded: Recorded | None) -> CallEnd:
    """Return the end of a call that returned; texts and MCP results carry their advice."""
    advice = "" if recorded is None else recorded.advice
    if isinstance(value, str) or (advice and mcp_fields(value) is not None):
        advice = ""
    is_changed = value is not shown or bool(advice)
    return CallEnd(value, advice=advice, is_changed=is_changed)
