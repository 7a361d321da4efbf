"""Where a service's socket lies: one for each user, policy and store."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from policyguard.store.paths import absolute_store, state_folder

_DIGEST_CHARS = 16


def socket_folder() -> Path:
    """Return the folder of the sockets: private to the user, and gone with the session or boot."""
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    if runtime.is_absolute() and runtime.is_dir():
        return runtime / "policyguard"
    return state_folder() / "run"


def locate_socket(policies: Iterable[str], store: str | Path) -> Path:
    """Return the socket of the service for a policy (packs or files) and a store."""
    named = [
        str(Path(policy).resolve()) if Path(policy).exists() else policy for policy in policies
    ]
    name = "\0".join([*named, absolute_store(store)])
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGEST_CHARS]
    return socket_folder() / f"{digest}.sock"
