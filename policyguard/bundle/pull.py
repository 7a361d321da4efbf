"""Keeps a folder at the latest bundle of a source, and at the last good one where there is none.

The folder has `current`, a link to `releases/VERSION-SHA`, with the policy's files as they were
signed, and `state.json`, which remembers the highest version: who can only publish old bundles
cannot put one back. The link is changed in one step, so that a guard reads one bundle or the other.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path

import msgspec

from policyguard.bundle.bundle import MAX_BYTES, Bundle, decode, format_time
from policyguard.bundle.check import check_policy, check_signature, check_time, is_signed
from policyguard.bundle.errors import BundleError
from policyguard.bundle.source import fetch
from policyguard.bundle.unpack import is_unpacked, unpack
from policyguard.engines.operating_system import has_file_locks

with suppress(ImportError):  # Windows
    import fcntl

_CURRENT, _RELEASES, _STATE = "current", "releases", "state.json"
_POLICY, _BUNDLE = "policy", "bundle.json"
"""What a release has: the policy's folder, and the bundle that it was unpacked from."""
_FOLDER_MODE, _OTHERS_WRITE = 0o755, 0o022
_KEPT = 3
"""How many releases are kept: guards may be reading the one before."""


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a folder has: the highest version that was in force, and what its source said of it."""

    version: int = 0
    name: str = ""
    sha256: str = ""
    source: str = ""
    etag: str = ""


class Pulled(msgspec.Struct, frozen=True):
    """The result of a pull. `repaired`: files of the policy had been changed here."""

    manifest_name: str
    version: int
    digest: str
    policies: tuple[Path, ...]
    expires: datetime | None
    is_new: bool
    repaired: bool


def pull(source: str, folder: Path, keys: Sequence[Path], *, now: datetime) -> Pulled:
    """Bring a folder to the bundle of a source: a file, a folder of bundles, or an HTTP address.

    `BundleError` if there is none that may be used, also if the one in force has expired: it stays.
    """
    with _lock(folder):
        return _pull(source, folder, keys, now)


def _pull(source: str, folder: Path, keys: Sequence[Path], now: datetime) -> Pulled:
    state = _read_state(folder)
    stored = folder / _CURRENT / _BUNDLE
    kept = _read_kept(stored, state)
    is_known = kept is not None and state.source == source and is_signed(kept, keys)
    fetched = fetch(source, state.etag if is_known else "", MAX_BYTES)
    if fetched is None:  # not changed since
        assert kept is not None  # noqa: S101 - asked so only where it is
        bundle, etag = kept, state.etag
    else:
        bundle, etag = decode(fetched.data, source), fetched.etag
    check_signature(bundle, keys, source)
    manifest = bundle.manifest
    if state.name not in ("", manifest.name):
        raise BundleError(
            f"{source}: is of policy `{manifest.name:.80}`, but `{state.name:.80}` is in force "
            "here; use another folder for another policy"
        )
    if manifest.version < state.version:
        raise BundleError(
            f"{source}: version {manifest.version}, but version {state.version} was in force here: "
            "an old one was put back; to go back on purpose, publish it with a higher version"
        )
    if manifest.version == state.version and state.sha256 not in ("", bundle.sha256):
        raise BundleError(
            f"{source}: another version {manifest.version} than the one in force here; "
            "publish each version once"
        )
    check_time(bundle, now, source)
    current = folder / _CURRENT
    is_new = bundle.sha256 != state.sha256
    is_whole = kept is not None and not is_new and is_unpacked(bundle, current / _POLICY)
    if is_whole and kept == bundle:  # the same signatures, too
        digest = check_policy(bundle, current / _POLICY)
    else:
        release = _install(bundle, folder / _RELEASES)
        digest = _point_at(current, release, bundle)
    _write_state(folder, State(manifest.version, manifest.name, bundle.sha256, source, etag))
    _remove_old(folder / _RELEASES, current.resolve())
    return Pulled(
        manifest.name,
        manifest.version,
        digest,
        tuple(current / _POLICY / name for name in manifest.policies),
        manifest.expires,
        is_new,
        repaired=not is_new and not is_whole,
    )


def _install(bundle: Bundle, releases: Path) -> Path:
    """Unpack a bundle beside the others, whole or not at all; return where."""
    base = f"{bundle.manifest.version}-{bundle.sha256[:16]}"
    names = chain([base], (f"{base}.{number}" for number in count(1)))
    part = releases / f"{base}.part"
    try:
        for path in (releases.parent, releases):
            path.mkdir(exist_ok=True)
            path.chmod(_FOLDER_MODE)
        if part.exists():  # of a process that was killed
            shutil.rmtree(part)
        part.mkdir()
        part.chmod(_FOLDER_MODE)
        (part / _BUNDLE).write_bytes(bundle.encode())
        (part / _BUNDLE).chmod(0o644)
        unpack(bundle, part / _POLICY)
        release = next(path for path in map(releases.joinpath, names) if not path.exists())
        part.rename(release)
    except OSError as error:
        raise BundleError(f"{part}: cannot be written: {error.strerror}; see its folder") from None
    return release


def _point_at(current: Path, release: Path, bundle: Bundle) -> str:
    """Check an unpacked release and make it current; return its digest."""
    try:
        digest = check_policy(bundle, release / _POLICY)
    except BundleError:
        shutil.rmtree(release, ignore_errors=True)
        raise
    link = current.with_name(f"{_CURRENT}.part")
    try:
        with suppress(FileNotFoundError):
            link.unlink()
        link.symlink_to(Path(_RELEASES) / release.name)
        link.replace(current)
    except OSError as error:
        raise BundleError(f"{current}: cannot be set: {error.strerror}; see its folder") from None
    return digest


def _remove_old(releases: Path, current: Path) -> None:
    found = [one for one in releases.iterdir() if one.resolve() != current]
    found.sort(key=lambda one: one.stat().st_mtime)
    for old in found[: max(0, len(found) - _KEPT + 1)]:
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Keep other pulls off a folder, as far as the system has locks of files."""
    try:
        with suppress(FileExistsError):
            folder.mkdir()
            folder.chmod(_FOLDER_MODE)
        _require_own(folder)
        with (folder / ".lock").open("wb") as file:
            if has_file_locks():
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
    except BlockingIOError:
        raise BundleError(f"{folder}: another pull is at work; let it end") from None
    except OSError as error:
        raise BundleError(f"{folder}: cannot be used: {error.strerror}; name another") from None


def _require_own(folder: Path) -> None:
    """Raise `BundleError` for a folder in which others may put links in the place of files."""
    if not hasattr(os, "geteuid"):  # Windows
        return
    trusted = (0, os.geteuid())
    found = folder.stat()
    if folder.lstat().st_uid not in trusted or found.st_uid not in trusted:
        raise BundleError(f"{folder}: belongs to another user; name a folder of your own")
    if found.st_mode & _OTHERS_WRITE:
        raise BundleError(
            f"{folder}: others may write to it, and so change the policy; name a folder in it, "
            f"which is made so that they cannot, or: chmod go-w {folder}"
        )


def _read_state(folder: Path) -> State:
    path = folder / _STATE
    try:
        return msgspec.json.decode(path.read_bytes(), type=State)
    except FileNotFoundError:
        if (folder / _CURRENT).exists() or (folder / _CURRENT).is_symlink():
            raise BundleError(
                f"{path}: is gone, and with it which version was in force; put it back, or "
                f"remove {folder / _CURRENT} after looking at it"
            ) from None
        return State()
    except (OSError, msgspec.DecodeError) as error:
        raise BundleError(f"{path}: cannot be read: {error}; put it back") from None


def _write_state(folder: Path, state: State) -> None:
    part, path = folder / f"{_STATE}.part", folder / _STATE
    try:
        with part.open("wb") as file:
            file.write(msgspec.json.encode(state) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise BundleError(f"{path}: cannot be written: {error.strerror}") from None


def _read_kept(stored: Path, state: State) -> Bundle | None:
    """Return the bundle in force as it is here; None if it was changed, or there is none."""
    try:
        with stored.open("rb") as file:
            kept = decode(file.read(MAX_BYTES + 1), str(stored))
    except (OSError, BundleError):
        return None
    return kept if kept.sha256 == state.sha256 else None


def describe(pulled: Pulled) -> str:
    """Return one line about a pull."""
    what = "is in force now" if pulled.is_new else "stays in force"
    if pulled.repaired:
        what = "is in force again: its files here had been changed"
    return (
        f"{pulled.manifest_name} version {pulled.version} {what} "
        f"(expires {format_time(pulled.expires)})"
    )


def utc_now() -> datetime:
    """Return the present time."""
    return datetime.now(UTC)
