"""Calls that wait, and their answers, posted to the address in the policy.

Messages are those of Standard Webhooks (github.com/standard-webhooks/standard-webhooks): the
headers `webhook-id`, `webhook-timestamp` and `webhook-signature`, an HMAC-SHA256 over
`id.timestamp.body`. An id is the same for each attempt, and after a restart, so a receiver that
keeps ids acts on a message once; a timestamp that is old says that someone replays it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import random
import threading
import time
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from policyguard.guard.guard import Guard
from policyguard.guard.host_log import warn
from policyguard.model.event import Approved, Denied, Event, Refused
from policyguard.model.policy import Webhook

MAX_QUEUED = 1000
"""Messages that were not received yet; of more, the oldest are given up, and logged."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
"""Seconds between the first two attempts, and the most between any two."""
_MIN_SECRET = 16
_PREFIX = "whsec_"


class _Message(NamedTuple):
    """A message, when to give it up and when it is tried next (monotonic), and attempts so far."""

    id: str
    body: bytes
    until: float
    due: float
    attempts: int = 0


def read_secret(webhook: Webhook, environ: Mapping[str, str]) -> bytes | None:
    """Return the secret that signs; None, and a warning, if there is none that will do."""
    text = environ.get(webhook.secret_env, "")
    secret = text.encode()
    if text.startswith(_PREFIX):
        try:
            secret = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
        except ValueError:
            secret = b""
    if len(secret) >= _MIN_SECRET:
        return secret
    warn(
        f"nothing is sent to the webhook: ${webhook.secret_env} is not set to a secret of "
        f"{_MIN_SECRET} bytes or more"
    )
    return None


def sign(secret: bytes, id_: str, timestamp: int, body: bytes) -> str:
    """Return the signature of a message."""
    signed = f"{id_}.{timestamp}.".encode() + body
    digest = hmac.digest(secret, signed, hashlib.sha256)
    return f"v1,{base64.b64encode(digest).decode()}"


class WebhookSender:
    """Posts to one address, in a thread of its own, in order as far as the receiver allows."""

    def __init__(self, guard: Guard, webhook: Webhook, secret: bytes) -> None:
        self._guard, self._webhook, self._secret = guard, webhook, secret
        self._queue: OrderedDict[str, _Message] = OrderedDict()
        self._changed = threading.Condition()
        self._ended = False
        self._opener = urllib.request.build_opener(_NoRedirects)
        guard.expect_answers()
        self._stop = guard.on(self._note, Refused, Approved, Denied)
        self._thread = threading.Thread(target=self._run, name="policyguard-webhook", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Send nothing more; what was not received is sent by the next service."""
        self._stop()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _note(self, event: Event) -> None:
        """Take an event, under the guard's lock: what is sent is found later."""
        if isinstance(event, Refused):
            if event.effect == "ask":
                self._wake()
        elif isinstance(event, (Approved, Denied)):
            answer = "approved" if isinstance(event, Approved) else "denied"
            said = event.message if isinstance(event, Denied) else ""
            fields = {"session": event.session, "call": event.call, "by": event.by}
            named = (answer, event.session, event.call, event.by, str(event.at))
            self._add(_make_id(*named), {"type": f"call.{answer}", **fields, "message": said})

    def _wake(self) -> None:
        with self._changed:
            self._queue.setdefault("", _Message("", b"", 0, 0))  # look for calls that wait
            self._changed.notify_all()

    def _add(self, id_: str, payload: dict[str, Any]) -> None:
        now = time.monotonic()
        body = msgspec.json.encode({"id": id_, **payload})
        until = now + self._webhook.retry_for / 1e9
        with self._changed:
            self._queue.setdefault(id_, _Message(id_, body, until, now))
            if len(self._queue) > MAX_QUEUED:
                dropped, _ = self._queue.popitem(last=False)
                warn(f"the webhook's receiver is too slow: message {dropped} is given up")
            self._changed.notify_all()

    def _run(self) -> None:
        sent: OrderedDict[str, None] = OrderedDict()
        self._add_waiting(sent)  # also those of before a restart
        while True:
            with self._changed:
                message = self._find_due()
                if message is None:
                    return
                self._queue.pop(message.id, None)
            if not message.id:
                self._add_waiting(sent)
            elif not self._post(message):
                self._put_back(message)

    def _find_due(self) -> _Message | None:
        """Wait for the next message that is due; None at the end."""
        while not self._ended:
            now = time.monotonic()
            due = min(self._queue.values(), key=lambda one: one.due, default=None)
            if due is not None and due.due <= now:
                return due
            self._changed.wait(None if due is None else due.due - now)
        return None

    def _add_waiting(self, sent: OrderedDict[str, None]) -> None:
        """Queue each call that waits and was not sent yet."""
        for question in self._guard.questions(also_closed=True):
            id_ = _make_id("asked", question.session, question.call, str(question.asked_at))
            if id_ in sent:
                continue
            sent[id_] = None
            if len(sent) > 10 * MAX_QUEUED:
                sent.popitem(last=False)
            self._add(id_, {"type": "call.asked", "question": msgspec.to_builtins(question)})

    def _post(self, message: _Message) -> bool:
        """Send a message; return whether it is done with: received, or refused for good."""
        timestamp = int(time.time())
        headers = {
            "content-type": "application/json",
            "user-agent": "policyguard",
            "webhook-id": message.id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign(self._secret, message.id, timestamp, message.body),
        }
        request = urllib.request.Request(  # noqa: S310 - the schema allows http and https alone
            self._webhook.url, message.body, headers, method="POST"
        )
        try:
            with self._opener.open(request, timeout=self._webhook.timeout / 1e9) as response:
                response.read(1)
                return True
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 410:  # the receiver wants no more of them
                warn(f"the webhook's receiver refuses message {message.id} for good (410)")
                return True
            reason = f"status {error.code}"
        except (OSError, ValueError) as error:
            reason = f"{type(error).__name__}: {error}"
        if not message.attempts:
            warn(f"the webhook's receiver did not take message {message.id}: {reason}")
        return False

    def _put_back(self, message: _Message) -> None:
        now = time.monotonic()
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**message.attempts)
        due = now + pause * random.uniform(0.5, 1.0)  # noqa: S311 - so that senders spread
        if due > message.until:
            warn(f"the webhook's receiver never took message {message.id}: it is given up")
            return
        again = message._replace(due=due, attempts=message.attempts + 1)
        with self._changed:
            self._queue.setdefault(message.id, again)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A signed message goes where the policy says, and nowhere else."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _make_id(*parts: str) -> str:
    digest = hashlib.sha256("\x1f".join(parts).encode("utf-8", "surrogatepass"))
    return f"msg_{digest.hexdigest()[:24]}"


def open_webhook(guard: Guard, webhook: Webhook | None) -> WebhookSender | None:
    """Return what sends to the policy's webhook; None if it has none, or no secret."""
    if webhook is None:
        return None
    secret = read_secret(webhook, os.environ)
    return None if secret is None else WebhookSender(guard, webhook, secret)
