"""One purse, counted in one transaction: what there is, who has it, and what follows from that."""

from __future__ import annotations

import os
import time

from policyguard.evaluator.account import Account
from policyguard.model.quantity import UNIT
from policyguard.store.ledger import Ledger
from policyguard.store.protocol import Terms
from policyguard.store.purse import SharedPurse
from policyguard.store.share import COUNT, HELD, ID, MOST, Share, Words, begin


class Count:
    """One purse, counted in one transaction. `freed` are slots that were freed in it.

    A slot that was freed is not taken by another share before that is written down: who dies in
    between must leave the words of the old one.
    """

    def __init__(self, ledger: Ledger, purse: SharedPurse, at: int | None, freed: set[int]) -> None:
        self._ledger = ledger
        self._purse = purse
        self._at = at
        self._freed = freed
        self._terms: Terms = purse.terms
        name = purse.name
        found = ledger.account(name.budget, name.key)
        self._new = found is None
        self.account = found or Account()
        self._granted = 0
        if name.key != name.scope:
            scope = ledger.account(name.budget, name.scope)
            self._granted = scope.granted if scope is not None else 0
        self._shares = {share.id: share for share in ledger.shares(name.budget, name.key)}
        self._own = self._shares.get(purse.share)
        self._words: dict[int, Words | None] = {}
        self._view: Account | None = None
        self._changed = self._own is not None and self._own.move(
            self.join(), self.account, self._terms
        )

    def finds(self, amount: int) -> bool:
        """Whether `amount` can be drawn; what others do not use is taken back for it."""
        self._view = None
        self._unfence()
        if self._new and not self._room_for_one(prune=True):
            return False
        if amount and self._free() + self._spare() < amount:
            self._bury_the_dead()
            if self._free() + self._spare() < amount:
                self._take_back(unused=True)
        self._view = self._viewed()
        return not amount or self._free() + self._spare() >= amount

    def draw(self, amount: int) -> None:
        """Draw what was found, and take something more on lease."""
        if self.account.start is None and self._at is not None:
            self.account.start = self._at
        self._changed = True
        if not amount:
            return
        terms = self._terms
        if terms.held:
            words = self.join()
            own = self._owned()
            reach = own.reach(words, terms) + amount
            if reach > MOST:
                raise OverflowError("more is to be held than can be counted")
            own.ceiling = max(own.ceiling, reach)
            words[HELD] += amount
        else:
            lacking = amount - max(0, self._free())
            if lacking > 0:
                self._owned().ceiling -= lacking
            self.use(amount)
        if self._purse.asked:
            self._lease(amount)

    def use(self, amount: int) -> None:
        """Count what was used, however much is left; a negative amount is given back."""
        self.account.draw(amount, self._when(), self._terms.within, self._terms.draws)
        self._changed = True

    def vague(self) -> bool:
        """Whether it takes more than a look to tell what stands in the purse.

        Others may have died with what they hold, draws in a window may have left it, and keys
        that are over may make room for this one.
        """
        if self._new and self._terms.within is not None and not self._room_for_one(prune=False):
            return True
        return any(
            words is not None and (words[HELD] > 0 or self._late(share, words))
            for share in self._others()
            for words in [self._words_of(share)]
        )

    def settle(self) -> None:
        """Count what the dead used, and in a window when each draw was made."""
        if self._new:
            self._room_for_one(prune=True)
        self._bury_the_dead()
        if self._terms.within is not None:
            self._take_back(unused=False)

    def join(self) -> Words:
        """Have a share of one's own; its words."""
        if self._own is None:
            self._bury_the_dead()
            ledger = self._ledger
            slot = ledger.free_slot(self._freed)
            id_ = int.from_bytes(os.urandom(8)) >> 2 | 1
            boot = ledger.boot if ledger.lasting else ""
            self._own = Share(id_, ledger.holder(), slot, boot=boot)
            self._shares[id_] = self._own
            words = self._words[id_] = ledger.words(slot, make=True)
            assert words is not None  # noqa: S101 - it has just been made
            begin(words, id_)
            self._changed = True
        found = self._words_of(self._own)
        assert found is not None  # noqa: S101 - the holder has them in its hands
        return found

    def leave(self) -> None:
        """Give back what one's own share has and does not use."""
        own = self._own
        if own is None:
            return
        words = self.join()
        name = self._purse.name
        if words[HELD] > 0:
            own.ceiling = own.reach(words, self._terms)
            self._ledger.put_share(name.budget, name.key, own)
        else:
            self._ledger.drop_share(name.budget, name.key, own)
        self._put()

    def save(self) -> None:
        """Write down what has changed."""
        if not self._changed:
            return
        self._put()
        if self._own is not None:
            name = self._purse.name
            self._ledger.put_share(name.budget, name.key, self._own)

    def answer(self, *, told: bool = True) -> None:
        """Let the holder know, now that it is written down."""
        purse, own = self._purse, self._own
        if own is None:
            purse.drop()
            purse.ceiling = 0
        else:
            purse.adopt(own, self.join())
            purse.ceiling = own.ceiling
        purse.asked += 1
        if told:
            self.tell()

    def tell(self) -> None:
        """Tell the holder what stands in the purse."""
        if self._new and self._own is None:
            self._room_for_one(prune=False)
        self._purse.account = self._viewed() if self._view is None else self._view
        self._purse.granted = self._granted

    def _viewed(self) -> Account:
        view = self.account.copy()
        terms = self._terms
        at = self._when()
        for share in self._shares.values():
            words = self._words_of(share)
            if words is None:
                view.used += share.ceiling - share.moved
                continue
            held: int = words[HELD]
            if terms.places:
                view.open += held // UNIT
                continue
            view.used += held
            more = share.used(words, terms) - share.moved
            if more > 0 and terms.within is not None:
                view.draw(more, at, terms.within, terms.draws)
            else:
                view.used += more
        return view

    def _free(self) -> int:
        """What nobody has drawn and nobody has on lease."""
        terms = self._terms
        limit = terms.limit + self.account.granted + self._granted
        free = limit - self.account.used_at(self._at, terms.within)
        for share in self._shares.values():
            words = self._words_of(share)
            reach = share.reach(words, terms) if words is not None else share.ceiling
            free -= max(share.ceiling, reach) - share.moved
        return free

    def _spare(self) -> int:
        """What one's own share has left."""
        if self._own is None:
            return 0
        return max(0, self._own.ceiling - self._own.reach(self.join(), self._terms))

    def _lease(self, amount: int) -> None:
        """Take a part of what is left, in multiples of what is drawn."""
        extra = self._free() // (2 * (len(self._shares) + (self._own is None)))
        extra -= extra % amount
        if extra > 0:
            self.join()
            own = self._owned()
            own.ceiling = min(own.ceiling + extra, max(own.ceiling, MOST))

    def _take_back(self, *, unused: bool) -> None:
        """Let nobody else have more on lease than it has used; in a window, count that."""
        fenced: list[tuple[Share, Words]] = []
        for share in self._others():
            words = self._words_of(share)
            if words is None:
                continue
            spare = share.ceiling > share.reach(words, self._terms)
            if (unused and spare) or self._late(share, words):
                words[ID] = -share.id
                fenced.append((share, words))
        if not fenced:
            return
        time.sleep(self._ledger.pause)
        name = self._purse.name
        for share, words in fenced:
            if self._terms.within is not None:
                share.move(words, self.account, self._terms)
            share.ceiling = min(share.ceiling, share.reach(words, self._terms))
            self._ledger.put_share(name.budget, name.key, share)
        self._changed = True

    def _late(self, share: Share, words: Words) -> bool:
        """Whether there are draws in a window that the account does not have yet."""
        return self._terms.within is not None and words[COUNT] != share.count

    def _unfence(self) -> None:
        """Let the holder go on: it has been told to wait for how far."""
        if self._own is not None:
            self.join()[ID] = self._own.id

    def _bury_the_dead(self) -> None:
        for share in self._others():
            dead = share.boot not in ("", self._ledger.boot)
            if dead or not self._ledger.alive(share.holder):
                self._bury(share)

    def _bury(self, share: Share) -> None:
        """Count what somebody who has died has used; what was held is free again."""
        words = self._words_of(share)
        if words is not None and share.boot in ("", self._ledger.boot):
            share.move(words, self.account, self._terms)
        elif not self._terms.places:  # nobody knows: it may have used all it had
            left = share.ceiling - share.moved
            self.use(max(0, left))
        self._ledger.drop_share(self._purse.name.budget, self._purse.name.key, share)
        del self._shares[share.id]
        self._freed.add(share.slot)
        self._changed = True

    def _when(self) -> int:
        """When this happens, as far as it is known."""
        return self._at if self._at is not None else self.account.now or 0

    def _others(self) -> list[Share]:
        return [share for share in self._shares.values() if share is not self._own]

    def _owned(self) -> Share:
        assert self._own is not None  # noqa: S101 - asked for where there must be one
        return self._own

    def _words_of(self, share: Share) -> Words | None:
        if share is self._own and self._purse.words is not None:
            return self._purse.words
        if share.id not in self._words:
            words = self._ledger.words(share.slot)
            self._words[share.id] = words if share.owns(words) else None
        return self._words[share.id]

    def _room_for_one(self, *, prune: bool) -> bool:
        """Whether the budget may have one more purse. Those of a whole scope are the host's."""
        name, terms = self._purse.name, self._terms
        self._purse.full = 0
        if name.key == name.scope:
            return True
        size = self._ledger.size(name.budget)
        if prune and size >= terms.keys and terms.within is not None and self._at is not None:
            self._ledger.prune(name.budget, self._at)
            size = self._ledger.size(name.budget)
        if size < terms.keys:
            return True
        self._purse.full = size
        return False

    def _put(self) -> None:
        terms, account = self._terms, self.account
        until = None
        if terms.within is not None and account.now is not None and not account.granted:
            until = account.now + terms.within
        self._ledger.put_account(self._purse.name.budget, self._purse.name.key, account, until)
