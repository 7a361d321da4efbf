"""An agent for compose.yaml: makes scripted calls through policyguard's service, on its socket.

    python agent.py /run/guard/one.sock SESSION

It needs the standard library alone, as an agent in any language needs HTTP alone.
"""

from __future__ import annotations

import http.client
import json
import socket
import sys
import time
from typing import Any

CALLS = [("search", {"query": "release notes"}), *[("deploy", {"to": "staging"})] * 3]
ATTEMPTS, PAUSE = 50, 0.2


class Service(http.client.HTTPConnection):
    """The service behind a socket."""

    def __init__(self, path: str) -> None:
        super().__init__("policyguard")
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        """Return the answer to one request. Raises `OSError` where there is none."""
        for attempt in range(ATTEMPTS):
            try:
                self.connect()
                break
            except OSError:  # the service is not up yet
                if attempt == ATTEMPTS - 1:
                    raise
                time.sleep(PAUSE)
        self.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = self.getresponse()
        answer = json.loads(response.read())
        self.close()
        if response.status != 200:
            raise OSError(f"{path}: {response.status} {answer}")
        return answer


def main(path: str, session: str) -> None:
    service = Service(path)
    for tool, arguments in CALLS:
        decision = service.post("/v1/check", session=session, tool=tool, args=arguments)
        if not decision["allowed"]:
            print(f"{tool}: {decision['message']}", flush=True)  # what the model is told
            continue
        result = f"did {tool}"  # here the tool would run
        service.post("/v1/record", session=session, call=decision["call"], result=result)
        print(f"{tool}: {result}", flush=True)
    service.post("/v1/end", session=session)


if __name__ == "__main__":
    main(*sys.argv[1:])
