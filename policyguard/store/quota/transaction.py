"""One quota in one transaction: its usage, its leases, and what may still be charged."""

from __future__ import annotations

import os
import time

from policyguard.evaluator.budgets.usage import BudgetUsage
from policyguard.model.amounts import SCALE
from policyguard.store.quota.backend import QuotaBackend
from policyguard.store.quota.handle import LeasedQuota
from policyguard.store.quota.lease import (
    COUNT,
    ID,
    MAX_AMOUNT,
    RESERVED,
    QuotaLease,
    SlotWords,
    reset_words,
)
from policyguard.store.quota.protocol import QuotaKey


class QuotaTransaction:
    """One quota, read, changed and saved in one transaction.

    `freed_slots` are the slots freed in it. No other lease takes them before the commit: if the
    process dies first, the old lease needs its words.
    """

    def __init__(
        self, backend: QuotaBackend, quota: LeasedQuota, at: int | None, freed_slots: set[int]
    ) -> None:
        self._backend = backend
        self._quota = quota
        self._at = at
        self._freed_slots = freed_slots
        self._spec = quota.spec
        self._key = key = quota.key
        stored = backend.get_usage(key)
        self._is_new = stored is None
        self.usage = stored or BudgetUsage()
        self._granted = 0
        if key.key != key.scope:
            scope = backend.get_usage(QuotaKey(key.budget, key.scope, key.scope))
            self._granted = scope.granted if scope is not None else 0
        self._leases = {lease.id: lease for lease in backend.list_leases(key)}
        self._own_lease = self._leases.get(quota.lease_id)
        self._words_by_lease: dict[int, SlotWords | None] = {}
        self._total: BudgetUsage | None = None
        self._changed = False
        if self._own_lease is not None:
            _, words = self.ensure_lease()
            self._changed = self._own_lease.settle(words, self.usage, self._spec, at)
        within = self._spec.within
        if at is not None and within is not None:
            self._changed |= self.usage.redate(at, within, self._spec.max_charges)

    def make_room(self, amount: int) -> bool:
        """Return whether `amount` can be charged, after reclaiming unused leases if needed."""
        self._total = None
        if self._own_lease is not None:  # the holder is asking: remove its fence
            _, words = self.ensure_lease()
            words[ID] = self._own_lease.id
        if not self._has_key_room(prune=True):
            return False
        if amount and self._available_amount() < amount:
            self._reclaim_dead()
            if self._available_amount() < amount:
                self._fence_others(reclaim_unused=True)
        self._total = self._compute_total()
        return not amount or self._available_amount() >= amount

    def charge(self, amount: int) -> None:
        """Charge an amount that there is room for, and extend the lease."""
        if self.usage.started_at is None:
            self.usage.started_at = self._at
        self._changed = True
        if not amount:
            return
        if self._spec.reserves:
            lease, words = self.ensure_lease()
            committed = lease.committed_amount(words, self._spec) + amount
            if committed > MAX_AMOUNT:
                raise OverflowError("the reservation is too large to count")
            lease.ceiling = max(lease.ceiling, committed)
            words[RESERVED] += amount
        else:
            lacking = amount - max(0, self._unleased_amount())
            if lacking > 0:
                lease, _ = self.ensure_lease()
                lease.ceiling -= lacking
            self.add_usage(amount)
        if self._quota.transaction_count:
            self._extend_lease(amount)

    def add_usage(self, amount: int) -> None:
        """Count usage, even beyond the limit; a negative amount is a refund."""
        self.usage.charge(amount, self._charge_time(), self._spec.within, self._spec.max_charges)
        self._changed = True

    def needs_settling(self) -> bool:
        """Return whether the usage is known only after `settle`.

        Other holders may have died with reservations, charges may have left the window, and expired
        keys may make room for this one.
        """
        if not self._has_key_room(prune=False) and self._spec.within is not None:
            return True
        return any(
            words is not None and (words[RESERVED] > 0 or self._has_unsettled(lease, words))
            for lease in self._other_leases()
            for words in [self._words_of(lease)]
        )

    def settle(self) -> None:
        """Count the usage of dead holders and, in a window, the time of each charge."""
        self._has_key_room(prune=True)
        self._reclaim_dead()
        if self._spec.within is not None:
            self._fence_others(reclaim_unused=False)

    def reset(self) -> BudgetUsage:
        """Forget usage and grants, and return what they were. Reservations stay.

        What living holders have used is settled first; then they must ask the store.
        """
        self._reclaim_dead()
        leases = [(lease, self._words_of(lease)) for lease in self._leases.values()]
        for lease, words in leases:
            if words is not None:
                words[ID] = -lease.id
        time.sleep(self._backend.visibility_delay)
        for lease, words in leases:
            if words is None:  # lost: it may have used all
                self.add_usage(max(0, lease.ceiling - lease.settled_amount))
                lease.settled_amount = lease.ceiling
            else:
                lease.settle(words, self.usage, self._spec, None)
                lease.ceiling = min(lease.ceiling, lease.committed_amount(words, self._spec))
            self._backend.put_lease(self._key, lease)
        before, self.usage = self.usage, BudgetUsage()
        if leases:
            self._backend.put_usage(self._key, self.usage, None)
        else:
            self._backend.delete_usage(self._key)
        return before

    def ensure_lease(self) -> tuple[QuotaLease, SlotWords]:
        """Return the holder's lease and its words, taking a lease if needed."""
        if self._own_lease is None:
            self._reclaim_dead()
            backend = self._backend
            slot = backend.find_free_slot(self._freed_slots)
            id_ = int.from_bytes(os.urandom(8)) >> 2 | 1
            boot_id = backend.boot_id if backend.is_durable else ""
            self._own_lease = QuotaLease(id_, backend.holder_id(), slot, boot_id=boot_id)
            self._leases[id_] = self._own_lease
            created = self._words_by_lease[id_] = backend.create_words(slot)
            reset_words(created, id_)
            self._changed = True
        words = self._words_of(self._own_lease)
        assert words is not None  # noqa: S101 - the holder keeps them
        return self._own_lease, words

    def return_lease(self) -> None:
        """Return what the holder's lease does not use."""
        if self._own_lease is None:
            return
        lease, words = self.ensure_lease()
        if words[RESERVED] > 0:
            lease.ceiling = lease.committed_amount(words, self._spec)
            self._backend.put_lease(self._key, lease)
        else:
            self._backend.delete_lease(self._key, lease)
        self._put_usage()

    def save(self) -> None:
        """Save the changes."""
        if not self._changed:
            return
        self._put_usage()
        if self._own_lease is not None:
            self._backend.put_lease(self._key, self._own_lease)

    def publish(self, *, refresh: bool = True) -> None:
        """Give the holder its lease, after the commit."""
        quota = self._quota
        if self._own_lease is None:
            quota.drop_lease()
            quota.ceiling = 0
        else:
            lease, words = self.ensure_lease()
            quota.adopt_lease(lease, words)
            quota.ceiling = lease.ceiling
        quota.transaction_count += 1
        if refresh:
            self.refresh_quota()

    def refresh_quota(self) -> None:
        """Give the holder the current usage."""
        self._has_key_room(prune=False)
        self._quota.usage = self._compute_total() if self._total is None else self._total
        self._quota.granted = self._granted

    def _compute_total(self) -> BudgetUsage:
        """Return the usage and reservations of all holders."""
        total = self.usage.copy()
        spec = self._spec
        for lease in self._leases.values():
            words = self._words_of(lease)
            if words is None:
                total.used += lease.ceiling - lease.settled_amount
                continue
            reserved: int = words[RESERVED]
            if spec.counts_slots:
                total.running += reserved // SCALE
                continue
            total.used += reserved
            if spec.within is None:
                total.used += lease.used_amount(words, spec) - lease.settled_amount
                continue
            for at, amount in lease.list_unsettled(words):
                total.settle(amount, at, self._at, spec.within, spec.max_charges)
        return total

    def _available_amount(self) -> int:
        """Return what this holder may charge: the free amount and the rest of its lease."""
        available = self._unleased_amount()
        if self._own_lease is not None:
            lease, words = self.ensure_lease()
            available += max(0, lease.ceiling - lease.committed_amount(words, self._spec))
        return available

    def _unleased_amount(self) -> int:
        """Return what is neither used nor leased."""
        spec = self._spec
        limit = spec.limit + self.usage.granted + self._granted
        unleased = limit - self.usage.used_at(self._at, spec.within)
        for lease in self._leases.values():
            words = self._words_of(lease)
            committed = lease.ceiling if words is None else lease.committed_amount(words, spec)
            unleased -= max(lease.ceiling, committed) - lease.settled_amount
        return unleased

    def _extend_lease(self, amount: int) -> None:
        """Lease a fraction of the free amount, in multiples of the charge."""
        extra = self._unleased_amount() // (2 * (len(self._leases) + (self._own_lease is None)))
        extra -= extra % amount
        if extra > 0:
            lease, _ = self.ensure_lease()
            lease.ceiling = min(lease.ceiling + extra, max(lease.ceiling, MAX_AMOUNT))

    def _fence_others(self, *, reclaim_unused: bool) -> None:
        """Reduce other leases to what they have used; in a window, settle that."""
        fenced: list[tuple[QuotaLease, SlotWords]] = []
        for lease in self._other_leases():
            words = self._words_of(lease)
            if words is None:
                continue
            has_unused = lease.ceiling > lease.committed_amount(words, self._spec)
            if (reclaim_unused and has_unused) or self._has_unsettled(lease, words):
                words[ID] = -lease.id
                fenced.append((lease, words))
        if not fenced:
            return
        time.sleep(self._backend.visibility_delay)
        for lease, words in fenced:
            if self._spec.within is not None:
                lease.settle(words, self.usage, self._spec, self._at)
            lease.ceiling = min(lease.ceiling, lease.committed_amount(words, self._spec))
            self._backend.put_lease(self._key, lease)
        self._changed = True

    def _has_unsettled(self, lease: QuotaLease, words: SlotWords) -> bool:
        """Return whether a windowed lease has charges that the stored usage lacks."""
        return self._spec.within is not None and words[COUNT] != lease.settled_count

    def _reclaim_dead(self) -> None:
        for lease in self._other_leases():
            rebooted = lease.boot_id not in ("", self._backend.boot_id)
            if rebooted or not self._backend.is_alive(lease.holder):
                self._reclaim(lease)

    def _reclaim(self, lease: QuotaLease) -> None:
        """Count a dead holder's usage and free its reservations."""
        words = self._words_of(lease)
        if words is not None and lease.boot_id in ("", self._backend.boot_id):
            lease.settle(words, self.usage, self._spec, self._at)
        elif not self._spec.counts_slots:  # unknown: assume that it used the whole lease
            self.add_usage(max(0, lease.ceiling - lease.settled_amount))
        self._backend.delete_lease(self._key, lease)
        del self._leases[lease.id]
        self._freed_slots.add(lease.slot)
        self._changed = True

    def _charge_time(self) -> int:
        """Return the time of this transaction, as far as it is known."""
        return self._at if self._at is not None else self.usage.latest_at or 0

    def _other_leases(self) -> list[QuotaLease]:
        return [lease for lease in self._leases.values() if lease is not self._own_lease]

    def _words_of(self, lease: QuotaLease) -> SlotWords | None:
        if lease is self._own_lease and self._quota.words is not None:
            return self._quota.words
        if lease.id not in self._words_by_lease:
            words = self._backend.find_words(lease.slot)
            self._words_by_lease[lease.id] = words if lease.owns(words) else None
        return self._words_by_lease[lease.id]

    def _has_key_room(self, *, prune: bool) -> bool:
        """Return whether the budget has this key or room for it; keys of scopes always fit."""
        key, spec = self._key, self._spec
        self._quota.keys_when_full = 0
        if not self._is_new or key.key == key.scope:
            return True
        count = self._backend.count_keys(key.budget)
        if prune and count >= spec.max_keys and spec.within is not None and self._at is not None:
            self._backend.prune(key.budget, self._at)
            count = self._backend.count_keys(key.budget)
        if count < spec.max_keys:
            return True
        self._quota.keys_when_full = count
        return False

    def _put_usage(self) -> None:
        self._backend.put_usage(self._key, self.usage, self.usage.expires_at(self._spec.within))
        self._is_new = False
