"""`policyguard-hook HOST`: answer one event of a host through the service.

    policyguard-hook claude-code --policy policyguard.yaml [--store S] [--socket PATH]

It reads the event from standard input. Where the service does not run it is started; where none can
run, this process decides alone. Whatever goes wrong, it exits with 2, which refuses the call.
"""

from __future__ import annotations

import os
import sys

from policyguard.adapters.client.connection import Unavailable, post, start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_BLOCK = 2
IDLE = "1800"
"""Seconds without a request after which a service that was started here ends."""

_OPTIONS = ("--policy", "--store", "--socket")
_USAGE = "usage: policyguard-hook HOST --policy FILE_OR_PACK [--store FILE] [--socket PATH]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    try:
        host, options = _parse(sys.argv[1:] if arguments is None else arguments)
        body = sys.stdin.buffer.read()
        return _answer(host, options, body)
    except BaseException as error:  # noqa: BLE001 - no failure of ours may let a call run
        _say(f"policyguard could not check this call ({type(error).__name__}: {error})")
        return EXIT_BLOCK


def _parse(arguments: Sequence[str]) -> tuple[str, dict[str, list[str]]]:
    options: dict[str, list[str]] = {name: [] for name in _OPTIONS}
    host, rest = arguments[:1], [*arguments[1:]]
    while len(rest) > 1 and rest[0] in options:
        options[rest[0]].append(rest[1])
        del rest[:2]
    if not host or host[0].startswith("-") or rest:
        raise ValueError(_USAGE)
    return host[0], options


def _answer(host: str, options: dict[str, list[str]], body: bytes) -> int:
    policies = options["--policy"] or ["core"]
    socket_path = (options["--socket"] or [""])[-1] or _locate(policies, options["--store"])
    path = f"/v1/hooks/{host}"
    for _ in range(2):
        try:
            return _tell(*post(socket_path, path, body))
        except Unavailable:
            store = options["--store"][-1:]
            command = [sys.executable, "-m", "policyguard", "serve", "--socket", socket_path]
            command += [part for policy in policies for part in ("--policy", policy)]
            command += [part for name in store for part in ("--store", name)]
            if not start(socket_path, [*command, "--idle", IDLE]):
                break
    return _answer_alone(host, policies, options["--store"], body)


def _tell(status: int, _: dict[str, str], body: bytes) -> int:
    if status != 200:
        _say(body.decode("utf-8", "replace"))
        return EXIT_BLOCK
    sys.stdout.buffer.write(body)
    sys.stdout.buffer.flush()
    return 0


def _locate(policies: Sequence[str], store: Sequence[str]) -> str:
    from pathlib import Path

    from policyguard.adapters.client.location import locate_socket
    from policyguard.store.paths import default_store_path

    return str(locate_socket(policies, Path(store[-1]) if store else default_store_path()))


def _answer_alone(host: str, policies: Sequence[str], store: Sequence[str], body: bytes) -> int:
    from policyguard.adapters.client.one_shot import answer_hook_alone

    answer = answer_hook_alone(host, policies, store[-1] if store else None, body)
    if answer.exit_code:
        _say(answer.error)
    elif answer.output is not None:
        import json

        sys.stdout.write(json.dumps(answer.output))
        sys.stdout.flush()
    return answer.exit_code


def _say(text: str) -> None:
    os.write(2, text.encode("utf-8", "replace") + b"\n")


if __name__ == "__main__":
    sys.exit(main())
