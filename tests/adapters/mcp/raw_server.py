"""A server without an SDK: it writes each line that it reads to a file, and answers by the tool.

`python raw_server.py LOG [MODE]`. Modes: `deaf` ignores the end of its input and SIGTERM,
`forks` starts a process that keeps its pipes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LOG = Path(sys.argv[1])
MODE = sys.argv[2] if len(sys.argv) > 2 else ""


def write(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def answer(id_: Any, result: Any) -> None:
    write(json.dumps({"jsonrpc": "2.0", "id": id_, "result": result}))


def call(message: dict[str, Any]) -> None:
    """Do what the tool's name says."""
    id_, params = message["id"], message["params"]
    name, args = params["name"], params.get("arguments") or {}
    text = {"content": [{"type": "text", "text": "done"}]}
    if name == "give":  # exactly this result
        answer(id_, args["result"])
    elif name == "write":  # exactly this text
        write(args["text"].replace("$ID", json.dumps(id_)))
    elif name == "large":
        answer(id_, {"content": [{"type": "text", "text": "x" * args["size"]}]})
    elif name == "flood":
        for number in range(args["messages"]):
            data = {"data": "x" * 50_000, "number": number}
            write(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": data}))
    elif name == "end":
        sys.exit(args.get("code", 0))
    elif name == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif name == "never":
        pass
    elif name == "twice":
        answer(id_, text)
        answer(id_, text)
    else:
        answer(id_, text)


def main() -> None:
    Path(f"{LOG}.pid").write_text(str(os.getpid()))
    if MODE == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if MODE == "forks":
        child = subprocess.Popen(["sleep", "1000"])
        Path(f"{LOG}.child").write_text(str(child.pid))
    for line in sys.stdin:
        with LOG.open("a") as log:
            log.write(line)
        message = json.loads(line)
        if isinstance(message, dict) and message.get("method") == "tools/call":
            call(message)
        elif isinstance(message, dict) and "id" in message and "method" in message:
            answer(message["id"], {"echo": message["method"]})
    while MODE == "deaf":
        time.sleep(1)


main()
