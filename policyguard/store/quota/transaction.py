"""One purse, counted in one transaction: what there is, who has it, and what follows from that."""

from __future__ import annotations

import os
import time

from policyguard.evaluator.budgets.usage import BudgetUsage
from policyguard.model.amounts import SCALE
from policyguard.store.protocol import QuotaSpec
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


class QuotaTransaction:
    """One purse, counted in one transaction. `freed` are slots that were freed in it.

    A slot that was freed is not taken by another share before that is written down: who dies in
    between must leave the words of the old one.
    """

    def __init__(
        self, backend: QuotaBackend, quota: LeasedQuota, at: int | None, freed_slots: set[int]
    ) -> None:
        self._backend = backend
        self._quota = quota
        self._at = at
        self._freed_slots = freed_slots
        self._spec: QuotaSpec = quota.spec
        name = quota.key
        found = backend.get_usage(name.budget, name.key)
        self._is_new = found is None
        self.usage = found or BudgetUsage()
        self._granted = 0
        if name.key != name.scope:
            scope = backend.get_usage(name.budget, name.scope)
            self._granted = scope.granted if scope is not None else 0
        self._leases = {share.id: share for share in backend.list_leases(name.budget, name.key)}
        self._own_lease = self._leases.get(quota.lease_id)
        self._words_by_lease: dict[int, SlotWords | None] = {}
        self._total: BudgetUsage | None = None
        self._changed = self._own_lease is not None and self._own_lease.settle(
            self.ensure_lease(), self.usage, self._spec
        )

    def make_room(self, amount: int) -> bool:
        """Whether `amount` can be drawn; what others do not use is taken back for it."""
        self._total = None
        self._unfence()
        if self._is_new and not self._has_key_room(prune=True):
            return False
        if amount and self._unleased_amount() + self._unused_amount() < amount:
            self._reclaim_dead()
            if self._unleased_amount() + self._unused_amount() < amount:
                self._fence_others(reclaim_unused=True)
        self._total = self._compute_total()
        return not amount or self._unleased_amount() + self._unused_amount() >= amount

    def charge(self, amount: int) -> None:
        """Draw what was found, and take something more on lease."""
        if self.usage.started_at is None and self._at is not None:
            self.usage.started_at = self._at
        self._changed = True
        if not amount:
            return
        terms = self._spec
        if terms.reserves:
            words = self.ensure_lease()
            own = self._require_lease()
            reach = own.committed_amount(words, terms) + amount
            if reach > MAX_AMOUNT:
                raise OverflowError("more is to be held than can be counted")
            own.ceiling = max(own.ceiling, reach)
            words[RESERVED] += amount
        else:
            lacking = amount - max(0, self._unleased_amount())
            if lacking > 0:
                self._require_lease().ceiling -= lacking
            self.add_usage(amount)
        if self._quota.transaction_count:
            self._extend_lease(amount)

    def add_usage(self, amount: int) -> None:
        """Count what was used, however much is left; a negative amount is given back."""
        self.usage.charge(amount, self._charge_time(), self._spec.within, self._spec.max_charges)
        self._changed = True

    def needs_settling(self) -> bool:
        """Whether it takes more than a look to tell what stands in the purse.

        Others may have died with what they hold, draws in a window may have left it, and keys
        that are over may make room for this one.
        """
        if self._is_new and self._spec.within is not None and not self._has_key_room(prune=False):
            return True
        return any(
            words is not None and (words[RESERVED] > 0 or self._has_unsettled(share, words))
            for share in self._other_leases()
            for words in [self._words_of(share)]
        )

    def settle(self) -> None:
        """Count what the dead used, and in a window when each draw was made."""
        if self._is_new:
            self._has_key_room(prune=True)
        self._reclaim_dead()
        if self._spec.within is not None:
            self._fence_others(reclaim_unused=False)

    def ensure_lease(self) -> SlotWords:
        """Have a share of one's own; its words."""
        if self._own_lease is None:
            self._reclaim_dead()
            ledger = self._backend
            slot = ledger.find_free_slot(self._freed_slots)
            id_ = int.from_bytes(os.urandom(8)) >> 2 | 1
            boot = ledger.boot_id if ledger.is_durable else ""
            self._own_lease = QuotaLease(id_, ledger.holder_id(), slot, boot_id=boot)
            self._leases[id_] = self._own_lease
            words = self._words_by_lease[id_] = ledger.slot_words(slot, create=True)
            assert words is not None  # noqa: S101 - it has just been made
            reset_words(words, id_)
            self._changed = True
        found = self._words_of(self._own_lease)
        assert found is not None  # noqa: S101 - the holder has them in its hands
        return found

    def return_lease(self) -> None:
        """Give back what one's own share has and does not use."""
        own = self._own_lease
        if own is None:
            return
        words = self.ensure_lease()
        name = self._quota.key
        if words[RESERVED] > 0:
            own.ceiling = own.committed_amount(words, self._spec)
            self._backend.put_lease(name.budget, name.key, own)
        else:
            self._backend.delete_lease(name.budget, name.key, own)
        self._put_usage()

    def save(self) -> None:
        """Write down what has changed."""
        if not self._changed:
            return
        self._put_usage()
        if self._own_lease is not None:
            name = self._quota.key
            self._backend.put_lease(name.budget, name.key, self._own_lease)

    def publish(self, *, refresh: bool = True) -> None:
        """Let the holder know, now that it is written down."""
        purse, own = self._quota, self._own_lease
        if own is None:
            purse.drop_lease()
            purse.ceiling = 0
        else:
            purse.adopt_lease(own, self.ensure_lease())
            purse.ceiling = own.ceiling
        purse.transaction_count += 1
        if refresh:
            self.refresh_quota()

    def refresh_quota(self) -> None:
        """Tell the holder what stands in the purse."""
        if self._is_new and self._own_lease is None:
            self._has_key_room(prune=False)
        self._quota.usage = self._compute_total() if self._total is None else self._total
        self._quota.granted = self._granted

    def _compute_total(self) -> BudgetUsage:
        view = self.usage.copy()
        terms = self._spec
        at = self._charge_time()
        for share in self._leases.values():
            words = self._words_of(share)
            if words is None:
                view.used += share.ceiling - share.settled_amount
                continue
            held: int = words[RESERVED]
            if terms.counts_slots:
                view.running += held // SCALE
                continue
            view.used += held
            more = share.used_amount(words, terms) - share.settled_amount
            if more > 0 and terms.within is not None:
                view.charge(more, at, terms.within, terms.max_charges)
            else:
                view.used += more
        return view

    def _unleased_amount(self) -> int:
        """What nobody has drawn and nobody has on lease."""
        terms = self._spec
        limit = terms.limit + self.usage.granted + self._granted
        free = limit - self.usage.used_at(self._at, terms.within)
        for share in self._leases.values():
            words = self._words_of(share)
            reach = share.committed_amount(words, terms) if words is not None else share.ceiling
            free -= max(share.ceiling, reach) - share.settled_amount
        return free

    def _unused_amount(self) -> int:
        """What one's own share has left."""
        if self._own_lease is None:
            return 0
        return max(
            0,
            self._own_lease.ceiling
            - self._own_lease.committed_amount(self.ensure_lease(), self._spec),
        )

    def _extend_lease(self, amount: int) -> None:
        """Take a part of what is left, in multiples of what is drawn."""
        extra = self._unleased_amount() // (2 * (len(self._leases) + (self._own_lease is None)))
        extra -= extra % amount
        if extra > 0:
            self.ensure_lease()
            own = self._require_lease()
            own.ceiling = min(own.ceiling + extra, max(own.ceiling, MAX_AMOUNT))

    def _fence_others(self, *, reclaim_unused: bool) -> None:
        """Let nobody else have more on lease than it has used; in a window, count that."""
        fenced: list[tuple[QuotaLease, SlotWords]] = []
        for share in self._other_leases():
            words = self._words_of(share)
            if words is None:
                continue
            spare = share.ceiling > share.committed_amount(words, self._spec)
            if (reclaim_unused and spare) or self._has_unsettled(share, words):
                words[ID] = -share.id
                fenced.append((share, words))
        if not fenced:
            return
        time.sleep(self._backend.visibility_delay)
        name = self._quota.key
        for share, words in fenced:
            if self._spec.within is not None:
                share.settle(words, self.usage, self._spec)
            share.ceiling = min(share.ceiling, share.committed_amount(words, self._spec))
            self._backend.put_lease(name.budget, name.key, share)
        self._changed = True

    def _has_unsettled(self, lease: QuotaLease, words: SlotWords) -> bool:
        """Whether there are draws in a window that the account does not have yet."""
        return self._spec.within is not None and words[COUNT] != lease.settled_count

    def _unfence(self) -> None:
        """Let the holder go on: it has been told to wait for how far."""
        if self._own_lease is not None:
            self.ensure_lease()[ID] = self._own_lease.id

    def _reclaim_dead(self) -> None:
        for share in self._other_leases():
            dead = share.boot_id not in ("", self._backend.boot_id)
            if dead or not self._backend.is_alive(share.holder):
                self._reclaim(share)

    def _reclaim(self, lease: QuotaLease) -> None:
        """Count what somebody who has died has used; what was held is free again."""
        words = self._words_of(lease)
        if words is not None and lease.boot_id in ("", self._backend.boot_id):
            lease.settle(words, self.usage, self._spec)
        elif not self._spec.counts_slots:  # nobody knows: it may have used all it had
            left = lease.ceiling - lease.settled_amount
            self.add_usage(max(0, left))
        self._backend.delete_lease(self._quota.key.budget, self._quota.key.key, lease)
        del self._leases[lease.id]
        self._freed_slots.add(lease.slot)
        self._changed = True

    def _charge_time(self) -> int:
        """When this happens, as far as it is known."""
        return self._at if self._at is not None else self.usage.latest_at or 0

    def _other_leases(self) -> list[QuotaLease]:
        return [share for share in self._leases.values() if share is not self._own_lease]

    def _require_lease(self) -> QuotaLease:
        assert self._own_lease is not None  # noqa: S101 - asked for where there must be one
        return self._own_lease

    def _words_of(self, lease: QuotaLease) -> SlotWords | None:
        if lease is self._own_lease and self._quota.words is not None:
            return self._quota.words
        if lease.id not in self._words_by_lease:
            words = self._backend.slot_words(lease.slot)
            self._words_by_lease[lease.id] = words if lease.owns(words) else None
        return self._words_by_lease[lease.id]

    def _has_key_room(self, *, prune: bool) -> bool:
        """Whether the budget may have one more purse. Those of a whole scope are the host's."""
        name, terms = self._quota.key, self._spec
        self._quota.keys_when_full = 0
        if name.key == name.scope:
            return True
        size = self._backend.count_keys(name.budget)
        if prune and size >= terms.max_keys and terms.within is not None and self._at is not None:
            self._backend.prune(name.budget, self._at)
            size = self._backend.count_keys(name.budget)
        if size < terms.max_keys:
            return True
        self._quota.keys_when_full = size
        return False

    def _put_usage(self) -> None:
        terms, account = self._spec, self.usage
        until = None
        if terms.within is not None and account.latest_at is not None and not account.granted:
            until = account.latest_at + terms.within
        self._backend.put_usage(self._quota.key.budget, self._quota.key.key, account, until)
