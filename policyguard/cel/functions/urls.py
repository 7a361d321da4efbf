"""Functions on URLs and e-mail addresses (POLICY_LANGUAGE §6).

They raise `OperationError` for anything that two programs may read differently: a policy must
compare the host that the tool will connect to.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from policyguard.cel.errors import OperationError
from policyguard.cel.functions.hosts import (
    HostError,
    is_private_host,
    matches_host,
    normalize_host,
    normalize_host_pattern,
)
from policyguard.cel.types.values import no_such_overload
from policyguard.engines.lazy_pattern import lazy_pattern

_URL: Final = lazy_pattern(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)([^?#]*)")
_AUTHORITY: Final = lazy_pattern(r"(\[[^\[\]]*\]|[^:\[\]@%\s]+)(?::([0-9]*))?")
# Some clients remove these from a URL, others do not.
_CONTROL: Final = lazy_pattern(r"[\x00-\x1f\x7f-\x9f]|^\s|\s$")
_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21, "ssh": 22}
_MAX_URL_LENGTH: Final = 64 * 1024
_MAX_CACHED_LENGTH: Final = 500
# Common local parts only: `%` and `!` used to route mail, and quotes may hide an @.
_EMAIL_ADDRESS: Final = lazy_pattern(
    r"([A-Za-z0-9.#$&'*+/=?^_`{|}~-]{1,64})@([^@\s,;:<>()\[\]\\\"]+)"
)


def _invalid(message: str) -> OperationError:
    return OperationError("invalid-argument", message)


def url_host(url: Any) -> str:
    """`url.host()`: in lower case, IDNA, addresses in canonical form, IPv6 in brackets.

    It is an error for a URL without scheme and host, and for userinfo, backslashes, control
    characters and escapes.
    """
    if url.__class__ is not str:
        raise no_such_overload("host", url)
    return _parse_host_cached(url) if len(url) < _MAX_CACHED_LENGTH else _parse_host(url)


def _parse_host(url: str) -> str:
    return _parse(url)[1]


def _parse(url: str) -> tuple[str, str, str]:
    """Return the scheme in lower case, the host, and the port as written."""
    if len(url) > _MAX_URL_LENGTH:
        raise _invalid("the URL is too long")
    if _CONTROL.search(url):
        raise _invalid("the URL contains control characters or surrounding space")
    match = _URL.match(url)
    if match is None:
        raise _invalid("not a URL with a scheme and a host")
    if "\\" in match[0]:
        raise _invalid("the URL contains a backslash")
    authority = _AUTHORITY.fullmatch(match[1])
    if authority is None:
        raise _invalid("the URL has userinfo, escapes or no host")
    if authority[2] and (len(authority[2]) > 5 or int(authority[2]) > 65535):
        raise _invalid("the URL has an invalid port")
    try:
        host = normalize_host(authority[1])
    except HostError as error:
        raise _invalid(str(error)) from None
    return match[0].partition(":")[0].lower(), host, authority[2] or ""


_parse_host_cached: Final = lru_cache(maxsize=512)(_parse_host)
"""Several rules evaluate the same URL of a call."""


def is_host_in(url: Any, patterns: Any) -> bool:
    """`url.host_in(list)`: the host is in the list, or below an entry `*.domain`.

    Fails as `host` does, and for an entry that is not a host, because it could never match.
    """
    if patterns.__class__ is not list and patterns.__class__ is not tuple:
        raise no_such_overload("host_in", url, patterns)
    name = url_host(url)
    try:
        normalized = [normalize_host_pattern(pattern) for pattern in patterns]
    except HostError as error:
        raise _invalid(str(error)) from None
    return any(matches_host(name, pattern) for pattern in normalized)


def check_host_pattern(pattern: str) -> None:
    """Raise `ValueError` if a literal in a `host_in` list is not a host."""
    normalize_host_pattern(pattern)


def url_scheme(url: Any) -> str:
    """`url.scheme()`: in lower case. Fails as `host` does."""
    if url.__class__ is not str:
        raise no_such_overload("scheme", url)
    return _parse(url)[0]


def url_port(url: Any) -> int:
    """`url.port()`: as written, else that of the scheme. Fails as `host` does.

    It is an error for a URL without a port whose scheme has none of its own.
    """
    if url.__class__ is not str:
        raise no_such_overload("port", url)
    scheme, _, port = _parse(url)
    if port:
        return int(port)
    if scheme not in _PORTS:
        raise _invalid(f"the scheme `{scheme[:20]}` has no port of its own")
    return _PORTS[scheme]


def is_private_url(url: Any) -> bool:
    """`url.private()`: the host is this machine, on the local network, or the cloud's metadata.

    Fails as `host` does. Names are not looked up: one that resolves to a private address is not
    found.
    """
    return is_private_host(url_host(url))


def email_domain(address: Any) -> str:
    """`address.email_domain()`: the domain of exactly one plain address, normalized as a host.

    It is an error for display names, lists, comments, quotes, and numeric domains.
    """
    if address.__class__ is not str:
        raise no_such_overload("email_domain", address)
    match = _EMAIL_ADDRESS.fullmatch(address) if len(address) <= 1000 else None
    if match is None:
        raise _invalid("not exactly one plain e-mail address")
    try:
        domain = normalize_host(match[2])
    except HostError as error:
        raise _invalid(str(error)) from None
    if domain.rpartition(".")[2].isdigit():
        raise _invalid("the domain of the address is a number")
    return domain
