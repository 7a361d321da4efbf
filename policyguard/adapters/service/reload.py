"""A changed policy is swapped in between two calls, where the agent cannot have changed it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from policyguard.compiler import CompiledPolicy, compile_policy
from policyguard.compiler.inputs import Inputs
from policyguard.guard.guard import Guard
from policyguard.guard.host_log import warn
from policyguard.model.diagnostic import PolicyError

if TYPE_CHECKING:
    from policyguard.adapters.service.app import ServiceApp

_INTERVAL = 1.0
"""Seconds between two looks at the policy's files."""


class PolicyReload:
    """Reloads the policy of a service: on request, or by itself when its files change.

    By itself only if this process, and so an agent of the same user, can write none of the files.
    A request names the digest of the policy that its sender has read.
    """

    def __init__(self, app: ServiceApp, policies: Sequence[str], store: str | Path) -> None:
        self._app = app
        self._policies = [*policies]
        self._store = store
        self._inputs: Inputs | None = None
        self._seen: object = None
        """The files as they were at the last look, if they had changed, or what was wrong."""

    async def watch(self) -> None:
        """Look at the files from time to time, until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL)
            await self.look()

    async def look(self) -> None:
        """Reload the policy if its files have changed since the last look, or say why not."""
        try:
            inputs = await asyncio.to_thread(self._find_change)
            if inputs is None:
                self._seen = None
            elif (found := [*map(_stamp, _own_files(inputs))]) != self._seen:
                self._seen = found
                await self._reload_changed(inputs)
        except PolicyError as error:  # it was broken between two readings
            if str(error) != self._seen:
                warn(f"the policy in force stays: {error}")
            self._seen = str(error)

    async def reload(self, digest: str) -> str:
        """Load the policy as it is now, if its digest is this. Returns an error, or ""."""
        found = await asyncio.to_thread(self._check, digest)
        if isinstance(found, str):
            warn(f"the policy in force stays: {found}")
            return found
        # not read anew: the files may have changed since they were checked
        await self._app.swap(lambda: Guard.load(found, store=self._store))
        self._inputs = None
        warn(f"reloaded the policy {self._app.guard.policy!r}, {self._app.guard.digest}")
        return ""

    async def _reload_changed(self, inputs: Inputs) -> None:
        writable = next((file for file in _own_files(inputs) if _is_replaceable(file)), None)
        if writable is None:
            await self.reload("")
            return
        warn(
            f"the policy has changed, and the policy in force stays: {writable} can be written by "
            "the agent's user; read the change, then reload it with its digest"
        )

    def _find_change(self) -> Inputs | None:
        """Return the inputs of the policy in force if a file of them has changed."""
        if self._inputs is None:
            compiled = compile_policy(self._policies)
            if compiled.evaluator.digest != self._app.guard.digest:
                return compiled.inputs
            self._inputs = compiled.inputs
        return None if self._inputs.is_unchanged(os.environ) else self._inputs

    def _check(self, digest: str) -> CompiledPolicy | str:
        """Lint and compile the policy; returns it, or why it cannot be loaded."""
        # Only here: a service whose policy is cached starts without the compiler and its linter.
        from policyguard.compiler.pipeline import policy_error
        from policyguard.lint.linter import lint_paths

        files = [Path(policy) for policy in self._policies if Path(policy).is_file()]
        if files:
            errors = [found for found in lint_paths(files).diagnostics if found.severity == "error"]
            if errors:
                return str(policy_error(errors))
        try:
            compiled = compile_policy(self._policies)
        except PolicyError as error:
            return str(error)
        found = compiled.evaluator.digest
        if digest and digest != found:
            return f"its digest is {found}, not {digest}: read what has changed since"
        return compiled


def _own_files(inputs: Inputs) -> list[Path]:
    return [Path(file.key) for file in inputs.own_files]


def _stamp(file: Path) -> object:
    """Return what differs once a file has been changed again."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _is_replaceable(file: Path) -> bool:
    """Whether this process could change a file, or put another in its place."""
    return any(os.access(path, os.W_OK) for path in (file, *file.parents))
