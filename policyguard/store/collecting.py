"""Finds and deletes what a store keeps and nothing counts any more.

Guards do it only where there are too many of a kind. What was revoked stays: so that it is not
learned or granted again. Journals and their anchors have rules of their own (`journal.retention`).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from policyguard.model.grant import Grant
from policyguard.store.copying import StoredUsage, open_transfer
from policyguard.store.grant_records import list_grants
from policyguard.store.protocol import Store
from policyguard.store.quota.protocol import QuotaKey, QuotaSpec


class Garbage(msgspec.Struct, frozen=True):
    """What nothing counts any more.

    `grants` are those that have expired, `budgets` the usage of windows that are over, `leases` the
    number of leases of shared budgets that dead guards have left.
    """

    grants: tuple[Grant, ...]
    budgets: tuple[StoredUsage, ...]
    leases: int


def find_garbage(store: Store, at: int) -> Garbage:
    """Return what nothing counts any more at `at` (ns)."""
    transfer = open_transfer(store)
    with transfer.snapshot():
        grants = [one.grant for one in list_grants(store)]
        usages = transfer.read_usages()
        held = transfer.leased_keys()
        return Garbage(
            tuple(grant for grant in grants if grant.is_expired(at)),
            tuple(
                one
                for one in usages
                if one.until is not None and one.until <= at and (one.budget, one.key) not in held
            ),
            transfer.count_dead_leases(),
        )


def collect(store: Store, spec_of: Callable[[QuotaKey], QuotaSpec], at: int) -> Garbage:
    """Delete what nothing counts any more, and count what dead guards have used; return it.

    `spec_of` says what is known of a shared budget. What changes meanwhile is left alone.
    """
    transfer = open_transfer(store)
    garbage = find_garbage(store, at)
    if garbage.leases:
        transfer.settle(spec_of, at)
    with transfer.snapshot(write=True):
        again = find_garbage(store, at)
        for grant in garbage.grants:
            if grant in again.grants:
                store.grants.delete(grant.id)
        for one in garbage.budgets:
            if one in again.budgets:
                transfer.delete_usage(one)
    return garbage
