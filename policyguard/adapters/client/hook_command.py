"""`policyguard-hook HOST`: answer one event of a host through the service.

    policyguard-hook claude-code --policy policyguard.yaml [--store S] [--socket PATH] [--report]
        [--wait SECONDS]

It reads the event from standard input. Where the service does not run it is started; where none can
run, this process decides alone. Whatever goes wrong, it exits with 2, which refuses the call; with
`--report`, for events that ask nothing, it exits with 1. With `--wait` a call that needs an
approval waits so long for a person's answer.

`hook install` lets hosts run this file by its path with `python -I -S`: so an environment variable
or a file of the agent's project cannot change what is imported, and Python starts in half the time.
"""

from __future__ import annotations

import sys
from time import monotonic

if __name__ == "__main__":  # run by its path: the package is not on the search path
    sys.path.insert(0, __file__.rsplit("/policyguard/", 1)[0])

from policyguard.adapters.client.connection import ask, serve_command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_BLOCK, EXIT_NOTE = 2, 1

_DEADLINE = 8.0
"""Seconds until the call is refused; hosts let a call run whose hook does not answer in time."""

_POLL = 5
"""Seconds of one request that waits for a person, below `_DEADLINE`."""

_VALUED = ("--policy", "--store", "--socket", "--wait")
_USAGE = (
    "usage: policyguard-hook HOST [--policy FILE_OR_PACK]... [--store FILE] [--socket PATH] "
    "[--report] [--wait SECONDS]"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    failed = EXIT_NOTE if "--report" in arguments else EXIT_BLOCK
    try:
        host, options = _parse([part for part in arguments if part != "--report"])
        return _answer(host, options, sys.stdin.buffer.read(), failed)
    except BaseException as error:  # noqa: BLE001 - no failure of ours may let a call run
        _say(f"policyguard could not check this call ({type(error).__name__}: {error})")
        return failed


def _parse(arguments: Sequence[str]) -> tuple[str, dict[str, list[str]]]:
    options: dict[str, list[str]] = {name: [] for name in _VALUED}
    host, rest = arguments[:1], [*arguments[1:]]
    while len(rest) > 1 and rest[0] in options:
        options[rest[0]].append(rest[1])
        del rest[:2]
    if not host or host[0].startswith("-") or rest:
        raise ValueError(_USAGE)
    return host[0], options


def _answer(host: str, options: dict[str, list[str]], body: bytes, failed: int) -> int:
    end = monotonic() + int(options["--wait"][-1]) if options["--wait"] else 0.0
    policies, store = options["--policy"] or ["core"], options["--store"][-1:]
    socket_path = options["--socket"][-1] if options["--socket"] else _locate(policies, store)
    serve = serve_command(socket_path, policies, store)
    wait = f"{_seconds_left(end)}" if end else ""
    while True:
        path, deadline = f"/v1/hooks/{host}", monotonic() + _DEADLINE
        answer = ask(socket_path, path, body, serve, deadline, wait=wait)
        if answer is None:
            return _answer_alone(host, policies, store, body, failed)
        if answer[0] != 202:
            return _tell(*answer, failed)
        wait = f"{_seconds_left(end)} again"


def _seconds_left(end: float) -> int:
    """Return for how many whole seconds the next request may wait."""
    return min(_POLL, max(0, round(end - monotonic())))


def _tell(status: int, _: dict[str, str], body: bytes, failed: int) -> int:
    if status != 200:
        _say(body.decode("utf-8", "replace"))
        return failed
    sys.stdout.buffer.write(body)
    sys.stdout.buffer.flush()
    return 0


def _locate(policies: Sequence[str], store: list[str]) -> str:
    from policyguard.adapters.client.location import locate_socket
    from policyguard.store.paths import default_store_path

    return str(locate_socket(policies, store[0] if store else default_store_path()))


def _answer_alone(
    host: str, policies: Sequence[str], store: list[str], body: bytes, failed: int
) -> int:
    if sys.flags.no_site:
        import site

        site.main()  # the dependencies are installed packages
    from policyguard.adapters.client.one_shot import answer_hook_alone

    answer = answer_hook_alone(host, policies, store[0] if store else None, body)
    if answer.exit_code:
        _say(answer.error)
        return failed
    if answer.output is not None:
        import json

        sys.stdout.write(json.dumps(answer.output))
        sys.stdout.flush()
    return 0


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
