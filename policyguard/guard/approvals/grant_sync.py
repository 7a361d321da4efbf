"""Keeps grants in memory and in a store alike.

A grant lets calls run, so a row that another program wrote must not count: each has a MAC under the
journals' key, or else the store's. Revoking a grant removes its MAC, and needs no key.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from contextlib import suppress

from policyguard.evaluator.grants import GrantSet
from policyguard.guard.host_log import warn
from policyguard.model.grant import Grant
from policyguard.store.errors import StoreError
from policyguard.store.grant_records import decode_grant, sign_grant, to_record
from policyguard.store.protocol import REVOKED, RevocableRecord, Store


class GrantSync:
    """Synchronises a grant set with a store. Every method may raise `StoreError`."""

    def __init__(self, store: Store, grants: GrantSet, key: bytes) -> None:
        self._store = store
        self._grants = grants
        self._key = key
        self._version = 0
        self._reported: set[str] = set()
        self.poll()

    def poll(self) -> None:
        """Load what other processes have granted or revoked."""
        version = self._store.grants.version()
        if version == self._version:
            return
        changes = self._store.grants.changes(self._version)
        if changes.is_complete:
            stored = {record.id for record in changes.records}
            for held in self._grants:
                if held.id not in stored:
                    self._grants.remove(held.id)
        for record in changes.records:
            grant = self._read(record)
            if grant is None:
                self._grants.remove(record.id)
            else:
                self._grants.put(grant)
        self._version = changes.version

    def add(self, grants: Iterable[Grant]) -> None:
        """Store new grants, all or none."""
        with self._store.transaction():
            for grant in grants:
                self._store.grants.put(to_record(grant, self._key))

    def withdraw(self, grants: Iterable[Grant]) -> None:
        """Delete grants that could not be journalled, as far as the store can be written."""
        for grant in grants:
            with suppress(StoreError):
                self._store.grants.delete(grant.id)

    def revoke(self, id_: str, *, by: str, at: int) -> None:
        """Revoke a grant, for every process."""
        self._store.grants.revoke(id_, by=by, at=at)

    def delete(self, id_: str) -> None:
        """Delete a grant of a session that has ended."""
        self._store.grants.delete(id_)

    def _read(self, record: RevocableRecord) -> Grant | None:
        """Return the grant of a record; None for one that is revoked, or that no guard wrote."""
        if record.state == REVOKED:
            return None
        grant = decode_grant(record)
        signed = sign_grant(record.payload, self._key)
        is_signed = hmac.compare_digest(record.mac.encode(), signed.encode())
        if grant is not None and grant.id == record.id and is_signed:
            return grant
        if record.id not in self._reported:
            self._reported.add(record.id)
            warn(
                f"grant {record.id!r:.40} of the store does not count: it was changed, or made "
                "under another key"
            )
        return None
