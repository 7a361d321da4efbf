"""A service in a process of its own, for tests."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from policyguard.adapters.client.connection import Unavailable, post
from tests.kept_policies import keep_compiled


class RunningService:
    """A service that was started, and the way to it."""

    def __init__(self, folder: Path, policy: str, *options: str) -> None:
        self.store, self.socket = folder / "state.db", folder / "run" / "s.sock"
        self._policy = policy
        self._command = [sys.executable, "-m", "policyguard", "serve", "--policy", policy]
        self._command += ["--store", str(self.store), "--socket", str(self.socket), *options]
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        keep_compiled(self._policy)
        self.process = subprocess.Popen(self._command, stderr=subprocess.PIPE, text=True)
        while True:
            try:
                self.ask("/v1/nothing")
            except Unavailable:
                assert self.process.poll() is None, self.process.communicate()[1]
                time.sleep(0.02)
            else:
                return

    def ask(self, path: str, **fields: Any) -> tuple[int, Any]:
        """Send a request; returns the status and the decoded answer."""
        status, _, body = post(str(self.socket), path, json.dumps(fields).encode(), timeout=60)
        return status, json.loads(body) if body else None

    def check(self, session: str, tool: str, **fields: Any) -> Any:
        """Check a call, and return the answer."""
        args = fields.pop("args", {})
        status, answer = self.ask("/v1/check", session=session, tool=tool, args=args, **fields)
        assert status == 200, answer
        return answer

    def kill(self) -> None:
        """Kill the process, as a crash would."""
        self.process.kill()
        self.process.communicate()

    def stop(self) -> None:
        """End the process, and wait for it."""
        if self.process.poll() is None:
            self.process.terminate()
        self.process.communicate()
