"""The selector `hosts`: hosts of the URLs that a call names."""

from __future__ import annotations

from collections.abc import Iterable

from policyguard.cel.errors import OperationError
from policyguard.cel.functions.hosts import matches_host, normalize_host_pattern
from policyguard.cel.functions.urls import url_host
from policyguard.model.entry import Selector


class HostSelector:
    """Matches a URL whose host is in a list; with `outside`, one whose host is not.

    A URL whose host cannot be known matches.
    """

    def __init__(self, selector: Selector) -> None:
        patterns = [normalize_host_pattern(item) for item in selector.items]
        self._exact = frozenset(item for item in patterns if item[:1] != "*")
        self._subdomains = tuple(item for item in patterns if item[:1] == "*")
        self._outside = selector.outside

    def matches(self, urls: Iterable[str]) -> bool:
        """Whether one of the URLs matches; without any, none does."""
        return any(self._matches(url) for url in urls)

    def _matches(self, url: str) -> bool:
        try:
            host = url_host(url)
        except OperationError:
            return True
        is_listed = host in self._exact or any(matches_host(host, one) for one in self._subdomains)
        return is_listed is not self._outside
