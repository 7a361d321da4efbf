"""Host names and addresses in canonical form, and which of them are private.

A policy compares hosts that an agent wrote. If a client reads a spelling as another host than the
policy does, that is a bypass. So a host is normalized as clients do it (WHATWG URL, "host
parsing"), and an ambiguous one is an error, which counts against the call.
"""

from __future__ import annotations

import ipaddress
from functools import cache, lru_cache
from typing import Final

from policyguard.cel.errors import quote_short
from policyguard.engines.lazy_pattern import lazy_pattern

_MAX_HOST_LENGTH: Final = 1000
_LABEL: Final = lazy_pattern(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
# IDNA 2003 and 2008 map these four to different hosts.
_DEVIATIONS: Final = frozenset("ßς\u200c\u200d")
_DOTS: Final = lazy_pattern("[.\u3002\uff0e\uff61]")
_NUMBER: Final = lazy_pattern(r"0[xX][0-9a-fA-F]*|[0-9]+")

_PRIVATE_NETWORKS: Final = (
    "0.0.0.0/8",  # this host
    "10.0.0.0/8",
    "100.64.0.0/10",  # carrier-grade NAT; Alibaba's metadata service
    "127.0.0.0/8",
    "168.63.129.16/32",  # Azure's platform service, on every virtual machine
    "169.254.0.0/16",  # link-local; the metadata service of most clouds
    "172.16.0.0/12",
    "192.0.0.0/24",  # protocol assignments; Oracle's metadata service
    "192.0.2.0/24",  # documentation
    "192.88.99.0/24",  # 6to4 relays
    "192.168.0.0/16",
    "198.18.0.0/15",  # benchmarks
    "198.51.100.0/24",  # documentation
    "203.0.113.0/24",  # documentation
    "224.0.0.0/4",  # multicast
    "240.0.0.0/4",  # reserved, and broadcast
    "::/96",  # unspecified, loopback, IPv4-compatible
    "64:ff9b:1::/48",  # local-use translation of IPv4 addresses (RFC 8215)
    "100::/64",  # discard
    "2001:2::/48",  # benchmarks
    "2001:db8::/32",  # documentation
    "fc00::/7",  # unique local; Amazon's metadata service
    "fe80::/10",  # link-local
    "fec0::/10",  # site-local
    "ff00::/8",  # multicast
)
# Names of this machine or the local network, whatever a name server says.
_PRIVATE_NAMES: Final = (
    "localhost",
    "localdomain",
    "local",
    "internal",
    "intranet",
    "corp",
    "home",
    "lan",
    "private",
    "svc",  # services of a Kubernetes cluster
    "home.arpa",
)


_CACHE_SIZE: Final = 16_384
"""Cached hosts: more than the lists of a policy can hold (`bounds`)."""


class HostError(ValueError):
    """The text is not a host, or clients read it differently."""


@lru_cache(maxsize=_CACHE_SIZE)
def normalize_host(host: str) -> str:
    """Normalize `host`: lower case, IDNA, dotted quads, compressed IPv6 in brackets."""
    if len(host) > _MAX_HOST_LENGTH:
        raise HostError("the host is too long")
    if host.startswith("[") and host.endswith("]"):
        return _ipv6(host[1:-1])
    labels = [_label(label, host) for label in _DOTS.split(host)]
    if len(labels) > 1 and not labels[-1]:
        labels.pop()
    if not all(labels) or sum(map(len, labels)) + len(labels) > 254:
        raise HostError(f"{quote_short(host)} is not a valid host")
    if _NUMBER.fullmatch(labels[-1]):
        return _ipv4(labels)
    return ".".join(labels)


def _label(label: str, host: str) -> str:
    if not label.isascii():
        if _DEVIATIONS.intersection(label):
            raise HostError("clients read the host differently")
        try:
            # The result may contain anything, dots and slashes too: it is checked below.
            label = label.encode("idna").decode("ascii")
        except UnicodeError:
            raise HostError("the host is not a valid international name") from None
    label = label.lower()
    if label and not _LABEL.fullmatch(label):
        raise HostError(f"{quote_short(host)} is not a valid host")
    return label


def _ipv4(labels: list[str]) -> str:
    """Normalize a host that ends in a number: up to four numbers, also octal and hexadecimal."""
    if len(labels) > 4 or not all(_NUMBER.fullmatch(label) for label in labels):
        raise HostError("the host ends in a number but is not an address")
    try:
        *leading, last = (_ipv4_number(label) for label in labels)
    except ValueError:
        raise HostError("the host ends in a number but is not an address") from None
    if any(number > 255 for number in leading) or last >= 256 ** (4 - len(leading)):
        raise HostError("the address is out of range")
    for position, number in enumerate(leading):
        last += number << (8 * (3 - position))
    return str(ipaddress.IPv4Address(last))


def _ipv4_number(text: str) -> int:
    if len(text) > 64:
        raise HostError("the address is out of range")
    if text[:2] in ("0x", "0X"):
        return int(text[2:] or "0", 16)
    return int(text, 8 if text.startswith("0") else 10)


def _ipv6(text: str) -> str:
    try:
        if "%" in text:
            raise ValueError
        address = ipaddress.IPv6Address(text)
    except ValueError:
        raise HostError("not an IPv6 address") from None
    mapped = address.ipv4_mapped
    # A client of a mapped address connects to the IPv4 address in it.
    return f"[{address}]" if mapped is None else str(mapped)


@lru_cache(maxsize=_CACHE_SIZE)
def normalize_host_pattern(pattern: str) -> str:
    """Normalize an entry of a host list: a host, or `*.` and a domain.

    Raises `HostError` with the reason if it is neither.
    """
    has_port = ":" in pattern and not pattern.startswith("[")
    if "/" in pattern or has_port:
        host = (pattern.partition("://")[2] or pattern).partition("/")[0]
        if not host.startswith("["):
            host = f"[{host}]" if host.count(":") > 1 else host.partition(":")[0]
        raise HostError(f"write the host alone: {quote_short(host or 'x.org')}")
    if "*" in pattern.removeprefix("*."):
        raise HostError("`*` stands for subdomains only, as in `*.x.org`")
    if pattern.startswith("*."):
        return f"*.{normalize_host(pattern[2:])}"
    return normalize_host(pattern)


def matches_host(host: str, pattern: str) -> bool:
    """Whether `host` equals `pattern`, or is below its `*.domain`. Both are normalized."""
    return host.endswith(pattern[1:]) if pattern.startswith("*") else host == pattern


@lru_cache(maxsize=1024)
def is_private_host(host: str) -> bool:
    """Whether a normalized `host` is not public: this machine, the local network, the cloud's.

    Names are taken as written; none is looked up.
    """
    if host.startswith("["):
        return _is_private_ipv6(ipaddress.IPv6Address(host[1:-1]))
    if host.rpartition(".")[2].isdigit():
        return _in_private_network(ipaddress.IPv4Address(host))
    if "." not in host:
        return True
    return any(host == name or host.endswith(f".{name}") for name in _PRIVATE_NAMES)


def _is_private_ipv6(address: ipaddress.IPv6Address) -> bool:
    if _in_private_network(address):
        return True
    teredo = address.teredo
    embedded = [address.sixtofour, *(teredo or ())]
    if int(address) >> 32 in _TRANSLATION_PREFIXES or int(address) >> 32 & _ISATAP_MASK == 0x5EFE:
        embedded.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return any(_in_private_network(inner) for inner in embedded if inner is not None)


_TRANSLATION_PREFIXES: Final = frozenset(
    int(ipaddress.IPv6Address(prefix)) >> 32
    for prefix in ("64:ff9b::", "::ffff:0:0:0")  # NAT64 (RFC 6052), SIIT (RFC 2765)
)
_ISATAP_MASK: Final = 0xFDFFFFFF
"""ISATAP: any prefix, `0:5efe` or `200:5efe`, then the IPv4 address (RFC 5214)."""


def _in_private_network(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return any(address in network for network in _parse_private_networks())


@cache  # most policies ask for none
def _parse_private_networks() -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    return tuple(map(ipaddress.ip_network, _PRIVATE_NETWORKS))
