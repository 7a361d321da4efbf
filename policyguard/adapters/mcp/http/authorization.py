"""What a client reads in order to authorise against a server behind the proxy (RFC 9728).

A server names itself, by its own address, as the resource that tokens are for, and clients compare
that with the address that they call. So the proxy shows them its own address there, and makes the
comparison with the server's itself. The authorization server is the real one, and so are tokens.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

import msgspec

WELL_KNOWN = "/.well-known/oauth-protected-resource"
MAX_METADATA = 1024 * 1024
"""The largest metadata that are read, in bytes."""

_NAMED = re.compile(rb'\bresource_metadata\s*=\s*(?:"([^"]*)"|([^\s,"]+))', re.IGNORECASE)


class MetadataError(ValueError):
    """Metadata that are not of the server that they come from: `str()` says why."""


def resource_of(host: str, name: str) -> str:
    """Return the address of a server behind the proxy, which the client reaches as `host`."""
    return f"http://{host}/{name}"


def rewrite_challenge(challenge: bytes, host: str, name: str) -> bytes:
    """Return a `WWW-Authenticate` that names the proxy's metadata where it names the server's."""
    address = f"http://{host}{WELL_KNOWN}/{name}".encode("latin-1")
    return _NAMED.sub(lambda _: b'resource_metadata="' + address + b'"', challenge)


def find_metadata_url(challenge: bytes, server: str) -> str | None:
    """Return where a challenge says the metadata are, if that is at the server's own address."""
    found = _NAMED.search(challenge)
    if found is None:
        return None
    url = (found[1] or found[2] or b"").decode("latin-1")
    return url if _is_same_origin(url, server) else None


def list_metadata_urls(server: str) -> list[str]:
    """Return where a server's metadata are if it does not say where, the best first."""
    parts = urlsplit(server)
    paths = dict.fromkeys((f"{WELL_KNOWN}{parts.path.rstrip('/')}", WELL_KNOWN))
    return [urlunsplit((parts.scheme, parts.netloc, path, "", "")) for path in paths]


def rewrite_metadata(body: bytes, server: str, own: str) -> bytes:
    """Return a server's metadata with the proxy's address as the resource.

    Raises `MetadataError` where a client that calls the server itself would not go on.
    """
    try:
        metadata = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        metadata = None
    resource = metadata.get("resource") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(resource, str):
        raise MetadataError("they name no resource")
    if not _covers(resource, server):
        raise MetadataError(f"they are of {resource}, not of {server}")
    # What is signed has the server's own address in it, and would go before the rest.
    kept = {key: value for key, value in metadata.items() if key != "signed_metadata"}
    return msgspec.json.encode({**kept, "resource": own})


def _covers(resource: str, server: str) -> bool:
    try:
        outer, inner = urlsplit(resource).path, urlsplit(server).path
    except ValueError:
        return False
    return _is_same_origin(resource, server) and f"{inner.rstrip('/')}/".startswith(
        f"{outer.rstrip('/')}/"
    )


def _is_same_origin(one: str, other: str) -> bool:
    try:
        return _origin(one) == _origin(other)
    except ValueError:
        return False


def _origin(url: str) -> tuple[str, str | None, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
