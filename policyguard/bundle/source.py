"""Where bundles come from: a file, a folder of them, or an HTTP address with an ETag."""

from __future__ import annotations

import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from policyguard.bundle.errors import BundleError
from policyguard.bundle.http_deadline import Deadline
from policyguard.engines.input_file import open_input

SUFFIX = ".bundle.json"
_SILENCE, _DEADLINE = 30.0, 120.0
"""Seconds without a byte, and in all, after which a request fails: bytes may trickle."""


class Fetched(msgspec.Struct, frozen=True):
    """A bundle as it was fetched, with what to ask for the next time."""

    data: bytes
    etag: str


def fetch(source: str, etag: str, max_bytes: int) -> Fetched | None:
    """Return a source's bundle; None if it is still the one with this ETag. `BundleError`.

    At most `max_bytes + 1` bytes are read. Of a folder it is the file `*.bundle.json` that was
    changed last.
    """
    if source.startswith(("http://", "https://")):
        return _fetch_address(source, etag, max_bytes)
    path = Path(source)
    try:
        if path.is_dir():
            found = [one for one in path.iterdir() if one.name.endswith(SUFFIX)]
            if not found:
                raise BundleError(f"{source}: has no file *{SUFFIX}; build one into it")
            path = max(found, key=lambda one: (one.stat().st_mtime_ns, one.name))
        with open_input(path) as file:
            return Fetched(file.read(max_bytes + 1), "")
    except OSError as error:
        raise BundleError(f"{source}: cannot be read: {error.strerror}; name a bundle") from None


class _SameSchemeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but not from `https` to `http`, nor to a file."""

    def redirect_request(self, req: urllib.request.Request, *args: object) -> object:  # type: ignore[override]  # passed on
        target = str(args[-1])
        if urlsplit(target).scheme not in ("https", urlsplit(req.full_url).scheme):
            raise BundleError(f"{_shown(req.full_url)}: redirects to {_shown(target)}; name that")
        return super().redirect_request(req, *args)  # type: ignore[arg-type]  # as it was called


def _fetch_address(address: str, etag: str, max_bytes: int) -> Fetched | None:
    shown = _shown(address)
    deadline = Deadline(_DEADLINE)
    headers = {"Accept": "application/json", **({"If-None-Match": etag} if etag else {})}
    try:
        request = urllib.request.Request(address, headers=headers)  # noqa: S310 - http(s) only
        opener = urllib.request.build_opener(_SameSchemeRedirects, *deadline.handlers())
        with deadline, opener.open(request, timeout=_SILENCE) as answer:
            data = answer.read(max_bytes + 1)
            if deadline.is_over:
                raise TimeoutError
            return Fetched(data, answer.headers.get("ETag", "")[:200])
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 304 and etag:
                return None
            raise BundleError(f"{shown}: answers {error.code}; see its server") from None
    except (OSError, ValueError, HTTPException) as error:
        if deadline.is_over:
            late = f"{shown}: has not answered whole after {_DEADLINE:g} s; see its server"
            raise BundleError(late) from None
        reason = getattr(error, "reason", error)
        raise BundleError(f"{shown}: cannot be reached: {reason}") from None


def _shown(address: str) -> str:
    """Return an address without user, password and query."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
