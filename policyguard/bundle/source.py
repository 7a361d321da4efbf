"""Where bundles come from: a file, a folder of them, or an HTTP address with an ETag."""

from __future__ import annotations

import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from policyguard.bundle.errors import BundleError

SUFFIX = ".bundle.json"
_TIMEOUT = 30.0
"""Seconds without an answer, after which a request fails."""


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
        with path.open("rb") as file:
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
    headers = {"Accept": "application/json", **({"If-None-Match": etag} if etag else {})}
    try:
        request = urllib.request.Request(address, headers=headers)  # noqa: S310 - http(s) only
        opener = urllib.request.build_opener(_SameSchemeRedirects)
        with opener.open(request, timeout=_TIMEOUT) as answer:
            return Fetched(answer.read(max_bytes + 1), answer.headers.get("ETag", "")[:200])
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 304 and etag:
                return None
            raise BundleError(f"{shown}: answers {error.code}; see its server") from None
    except (OSError, ValueError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise BundleError(f"{shown}: cannot be reached: {reason}") from None


def _shown(address: str) -> str:
    """Return an address without user, password and query."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
