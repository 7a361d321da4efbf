"""A plain receiver of policyguard's webhook: it checks each message, and answers by a rule.

    POLICYGUARD_WEBHOOK_SECRET=… python receiver.py 8799 /run/user/1000/policyguard/….sock

It needs Python alone. Replace `decide` by your own: a queue, a chat, a pager.
"""

import base64
import hashlib
import hmac
import http.client
import http.server
import json
import os
import socket
import sys
import time

SECRET = os.environ["POLICYGUARD_WEBHOOK_SECRET"].encode()
MAX_AGE = 300  # seconds
seen = set()  # a message may arrive more than once


def decide(question):
    """Return what to do about a call that waits: its answer, or None to leave it to a person."""
    if question["tool"] == "deploy" and (question["args"] or {}).get("to") == "staging":
        return "/v1/approve", {"by": "the staging rule"}
    return None


def is_genuine(headers, body):
    """Whether policyguard has sent this, and lately (standardwebhooks.com)."""
    id_, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not timestamp.isdigit() or abs(time.time() - int(timestamp)) > MAX_AGE:
        return False
    signed = f"{id_}.{timestamp}.".encode() + body
    expected = base64.b64encode(hmac.digest(SECRET, signed, hashlib.sha256)).decode()
    given = [one.removeprefix("v1,") for one in headers.get("webhook-signature", "").split()]
    return any(hmac.compare_digest(expected, one) for one in given)


def answer(path, question, fields):
    """Answer over the service's socket."""
    connection = http.client.HTTPConnection("policyguard")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(sys.argv[2])
    owner = {name: question[name] for name in ("agent", "user", "project") if question[name]}
    if question["parent"]:
        owner["parent"] = question["parent"]
    body = {"session": question["session"], "call": question["call"], **owner, **fields}
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    print(path, question["call"], connection.getresponse().read().decode(), flush=True)


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(min(int(self.headers.get("content-length") or 0), 10_000_000))
        if not is_genuine(self.headers, body):
            self.send_error(401)
            return
        self.send_response(204)  # before acting: a message that is not taken in time comes again
        self.end_headers()
        message = json.loads(body)
        if message["id"] in seen or message["type"] != "call.asked":
            return
        seen.add(message["id"])
        decided = decide(message["question"])
        if decided is not None:
            answer(decided[0], message["question"], decided[1])


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
