"""The real yaml-language-server, spoken to over standard input and output as an editor does."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

VERSION = "2.0.0"
PATIENCE = 60
"""Seconds that an answer may take."""

Json = dict[str, Any]


class LanguageServer:
    """One server, in one folder."""

    def __init__(self, command: Path, folder: Path) -> None:
        self._process = subprocess.Popen(
            [command, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder
        )
        self._came: queue.Queue[Json] = queue.Queue()
        self._diagnostics: dict[str, list[Json]] = {}
        self._asked = 0
        threading.Thread(target=self._read, daemon=True).start()
        where = folder.as_uri()
        self.ask(
            "initialize",
            {
                "processId": None,
                "rootUri": where,
                "workspaceFolders": [{"uri": where, "name": "policies"}],
                "capabilities": {
                    "workspace": {"configuration": True},
                    "textDocument": {"hover": {"contentFormat": ["markdown"]}},
                },
            },
        )
        self._send({"method": "initialized", "params": {}})

    def open(self, file: Path) -> list[Json]:
        """Open a file, and wait for what the server has against it."""
        document = {"uri": file.as_uri(), "languageId": "yaml", "version": 1}
        document["text"] = file.read_text("utf-8")
        self._send({"method": "textDocument/didOpen", "params": {"textDocument": document}})
        until = time.monotonic() + PATIENCE
        while file.as_uri() not in self._diagnostics and time.monotonic() < until:
            self._take(self._came.get(timeout=PATIENCE))
        return self._diagnostics[file.as_uri()]

    def hover(self, file: Path, line: int, column: int) -> str:
        """The text that is shown over a place; lines and columns count from 1."""
        found = self.ask("textDocument/hover", _place(file, line, column))
        return found["contents"]["value"] if found else ""

    def completions(self, file: Path, line: int, column: int) -> dict[str, str]:
        """What is offered at a place, each with its description."""
        found = self.ask("textDocument/completion", _place(file, line, column))
        return {item["label"]: str(item.get("documentation", "")) for item in found["items"]}

    def ask(self, method: str, params: Json | None) -> Any:
        """The answer to a request."""
        self._asked += 1
        own = self._asked
        self._send({"id": own, "method": method, "params": params})
        while True:
            message = self._came.get(timeout=PATIENCE)
            if message.get("id") == own and "method" not in message:
                assert "error" not in message, message
                return message.get("result")
            self._take(message)

    def close(self) -> None:
        self.ask("shutdown", None)
        self._send({"method": "exit"})
        self._process.communicate(timeout=PATIENCE)

    def _take(self, message: Json) -> None:
        """What the server says, or asks, of itself."""
        method = message.get("method")
        if method == "textDocument/publishDiagnostics":
            self._diagnostics[message["params"]["uri"]] = message["params"]["diagnostics"]
        elif "id" in message and method is not None:
            settings = {"validate": True, "hover": True, "completion": True}
            settings["schemaStore"] = {"enable": False}  # nothing is fetched
            items = message.get("params", {}).get("items", ())
            wanted = [settings if item.get("section") == "yaml" else {} for item in items]
            answer = wanted if method == "workspace/configuration" else None
            self._send({"id": message["id"], "result": answer})

    def _send(self, message: Json) -> None:
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
        self._process.stdin.flush()

    def _read(self) -> None:
        output = self._process.stdout
        assert output is not None
        while header := output.readline():
            length = int(header.partition(b":")[2])
            while output.readline().strip():
                pass
            self._came.put(json.loads(output.read(length)))


def _place(file: Path, line: int, column: int) -> Json:
    return {
        "textDocument": {"uri": file.as_uri()},
        "position": {"line": line - 1, "character": column - 1},
    }
