"""Send servers' entries through the proxy, and put them back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from policyguard.adapters.installation.mcp.clients import EntryPath, McpClient
from policyguard.adapters.installation.records import (
    ChangeRecord,
    Records,
    record_change,
    undo,
)
from policyguard.adapters.installation.settings import SettingsError

_MARK = ("-m", "policyguard", "mcp")
"""In the arguments of our entries; a server's command follows the first `--` after it."""


class Proxy(NamedTuple):
    """How entries reach the proxy: its command, up to the server's name, and its address."""

    command: str
    arguments: tuple[str, ...]
    address: str


class Routed(NamedTuple):
    """Settings that were rewritten.

    `upstreams` are the addresses that the proxy is to serve, by name, `notes` say which entries
    were left as they were.
    """

    text: str
    records: Records
    upstreams: dict[str, str]
    notes: tuple[str, ...]


def proxy_arguments(policies: list[str], store: str | None) -> tuple[str, ...]:
    """Return the arguments of the proxy's command, up to the server's name."""
    named = [part for policy in policies for part in ("--policy", policy)]
    return ("-P", *_MARK, *named, *(("--store", store) if store else ()))


def install(
    client: McpClient, text: str, records: Records, proxy: Proxy, servers: Collection[str]
) -> Routed:
    """Return settings whose entries go through the proxy: of all servers, or of those named.

    Raises `SettingsError`.
    """
    _check_names(client, text, servers)
    upstreams: dict[str, str] = {}
    notes: list[str] = []
    for path, _ in [*client.find_entries(client.parse(text))]:
        if servers and path[-1] not in servers:
            continue
        text, records = _restore(client, text, records, path)
        entry = _entry_at(client, text, path)
        try:
            changes = _route(client, path[-1], entry, proxy)
        except SettingsError as error:
            notes.append(f"{'/'.join(path)}: {error}")
            continue
        address = next((key for key in changes if key not in ("command", "args")), None)
        if address and upstreams.setdefault(path[-1], entry[address]) != entry[address]:
            notes.append(f"{'/'.join(path)}: another server is called so; rename one of them")
            continue
        changed = client.set_members(text, path, changes)
        members = {key: entry[key] for key in changes if key in entry}
        records = (*records, record_change(path, members, text, changed))
        text = changed
    return Routed(text, records, upstreams, tuple(notes))


def uninstall(client: McpClient, text: str, records: Records, servers: Collection[str]) -> Routed:
    """Return settings with the entries as they were. Raises `SettingsError`."""
    _check_names(client, text, servers)
    order = {record.path: index for index, record in enumerate(records)}
    paths = [path for path, _ in client.find_entries(client.parse(text))]
    for path in sorted(paths, key=lambda path: order.get(path, -1), reverse=True):
        if not servers or path[-1] in servers:
            text, records = _restore(client, text, records, path)
    known = {*paths}
    return Routed(text, tuple(one for one in records if one.path in known), {}, ())


def _restore(
    client: McpClient, text: str, records: Records, path: EntryPath
) -> tuple[str, Records]:
    """Put one entry back, if it is ours."""
    record = next((one for one in reversed(records) if one.path == path), None)
    rest = tuple(one for one in records if one.path != path)
    if record is not None and (undone := undo(text, record)) is not None:
        return undone, rest
    entry = _entry_at(client, text, path)
    members = _original(entry, record)
    return (text, rest) if members is None else (client.set_members(text, path, members), rest)


def _original(entry: Mapping[str, Any], record: ChangeRecord | None) -> dict[str, Any] | None:
    """Return the members that an entry of ours had; None if it is not ours."""
    arguments = entry.get("args")
    if isinstance(arguments, list) and _is_ours(arguments):
        command, *rest = arguments[arguments.index("--") + 1 :]
        return {"command": command, "args": rest}
    if record is not None and "command" not in record.members:
        written = {key: entry.get(key) for key in record.members}
        if all(isinstance(url, str) and _is_loopback(url) for url in written.values()):
            return record.members
    return None


def _is_ours(arguments: list[Any]) -> bool:
    marked = any(tuple(arguments[at : at + 3]) == _MARK for at in range(len(arguments)))
    return marked and "--" in arguments and len(arguments) > arguments.index("--") + 1


def _is_loopback(url: str) -> bool:
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")


def _route(client: McpClient, name: str, entry: Mapping[str, Any], proxy: Proxy) -> dict[str, Any]:
    """Return the members of an entry that are to change. Raises `SettingsError` if none can."""
    command, arguments = entry.get("command"), entry.get("args", [])
    if isinstance(command, str) and command:
        if not isinstance(arguments, list) or not all(isinstance(one, str) for one in arguments):
            raise SettingsError("its `args` are not a list of texts")
        own = [*proxy.arguments, "--server", name, "--", command, *arguments]
        return {"command": proxy.command, "args": own}
    kind = entry.get("type") or entry.get("transport")
    for key in client.address_keys:
        url = entry.get(key)
        if not isinstance(url, str) or not url:
            continue
        if kind == "sse" or (kind is None and key in client.sse_keys):
            raise SettingsError("it speaks SSE, which the proxy does not")
        if _is_loopback(url) and url.startswith(f"{proxy.address}/"):
            raise SettingsError("it goes to the proxy, and what it was before is not recorded")
        return {key: f"{proxy.address}/{name}"}
    raise SettingsError("it has neither a command nor an address")


def _entry_at(client: McpClient, text: str, path: EntryPath) -> Mapping[str, Any]:
    entry: Any = client.parse(text)
    for key in path:
        entry = entry[key]
    if not isinstance(entry, Mapping):
        raise SettingsError(f"`{'.'.join(path)}` is not an object; mend the settings first")
    return entry


def _check_names(client: McpClient, text: str, servers: Collection[str]) -> None:
    known = {path[-1] for path, _ in client.find_entries(client.parse(text))}
    missing = [name for name in servers if name not in known]
    if missing:
        listed = ", ".join(sorted(known)) or "none"
        raise SettingsError(f"the settings have no server `{missing[0]}`; they have {listed}")
    if not known:
        raise SettingsError(f"{client.title} has no servers in these settings; name --settings")
