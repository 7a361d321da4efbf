"""The folder in which a host runs a command, where that is not the session's."""

from __future__ import annotations

from typing import Any

FOLDER = "cwd"
"""The argument that names the folder of a call, in the words of `core` (`classify.folder`)."""


def locate_command(args: dict[str, Any], folder: str, of_session: str) -> dict[str, Any]:
    """Return a call's arguments, a command's with the folder in which the host's shell is now.

    Where that is the session's or not known, and for calls that say their folder or run no command,
    the arguments stay as they are.
    """
    if folder in ("", of_session) or not isinstance(args.get("command"), str):
        return args
    return {FOLDER: folder, **args}
