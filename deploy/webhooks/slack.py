"""Calls that wait, as Slack messages with buttons; a click answers over the service's socket.

    POLICYGUARD_WEBHOOK_SECRET=… SLACK_BOT_TOKEN=xoxb-… SLACK_SIGNING_SECRET=… SLACK_CHANNEL=C0… \\
        python slack.py 8799 /run/user/1000/policyguard/….sock

The policy's webhook posts to `http://127.0.0.1:8799/policyguard`. Slack's "Interactivity" request
address, through a tunnel or proxy of yours, is `/slack`. The app needs the scope `chat:write`.
"""

import hashlib
import hmac
import http.server
import json
import os
import sys
import threading
import time
import urllib.parse
import urllib.request

import receiver

API = os.environ.get("SLACK_API", "https://slack.com/api/")
SIGNING_SECRET = os.environ["SLACK_SIGNING_SECRET"].encode()
waiting = {}  # message id -> question


def call_slack(method, **fields):
    """Call Slack's API."""
    headers = {
        "authorization": f"Bearer {os.environ['SLACK_BOT_TOKEN']}",
        "content-type": "application/json; charset=utf-8",
    }
    request = urllib.request.Request(API + method, json.dumps(fields).encode(), headers)
    urllib.request.urlopen(request, timeout=10).close()


def plain(text, most=2000):
    """Slack shows such text as it is, without links or mentions."""
    return {"type": "plain_text", "text": str(text)[:most], "emoji": False}


def show(id_, question):
    """Post a call that waits."""
    waiting[id_] = question
    args = json.dumps(question["args"], indent=1, ensure_ascii=False)
    title = f"{question['tool']} waits in session {question['session']}"
    button = {"type": "button", "value": id_}
    call_slack(
        "chat.postMessage",
        channel=os.environ["SLACK_CHANNEL"],
        text=title,
        blocks=[
            {"type": "section", "text": plain(title)},
            {"type": "section", "text": plain(args)},
            {"type": "context", "elements": [plain(", ".join(question["entries"]))]},
            {
                "type": "actions",
                "elements": [
                    {
                        **button,
                        "action_id": "approve",
                        "text": plain("Approve once"),
                        "style": "primary",
                    },
                    {**button, "action_id": "deny", "text": plain("Deny"), "style": "danger"},
                ],
            },
        ],
    )


def is_from_slack(headers, body):
    """See docs.slack.dev: verifying requests from Slack."""
    timestamp = headers.get("x-slack-request-timestamp", "")
    if not timestamp.isdigit() or abs(time.time() - int(timestamp)) > receiver.MAX_AGE:
        return False
    signed = b"v0:" + timestamp.encode() + b":" + body
    expected = "v0=" + hmac.new(SIGNING_SECRET, signed, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, headers.get("x-slack-signature", ""))


def take_click(payload):
    """Answer as the person who has clicked."""
    action = payload["actions"][0]
    question = waiting.get(action["value"])
    if question is None or action["action_id"] not in ("approve", "deny"):
        return
    by = f"{payload['user'].get('username') or payload['user']['id']} on Slack"
    receiver.answer(f"/v1/{action['action_id']}", question, {"by": by})


class Bridge(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(min(int(self.headers.get("content-length") or 0), 10_000_000))
        from_slack = self.path == "/slack"
        check = is_from_slack if from_slack else receiver.is_genuine
        if not check(self.headers, body):
            self.send_error(401)
            return
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()
        if from_slack:
            payload = json.loads(urllib.parse.parse_qs(body.decode())["payload"][0])
            threading.Thread(target=take_click, args=(payload,)).start()
            return
        message = json.loads(body)
        if message["id"] not in receiver.seen and message["type"] == "call.asked":
            receiver.seen.add(message["id"])
            threading.Thread(target=show, args=(message["id"], message["question"])).start()


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Bridge).serve_forever()
