"""Ed25519 signatures of bundles. Keys are files that the host names, not what a bundle carries."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from policyguard.bundle.bundle import Bundle, Signature
from policyguard.bundle.errors import BundleError
from policyguard.engines.input_file import open_input

try:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_pem_private_key,
        load_pem_public_key,
    )
except ImportError as missing:
    raise BundleError(
        f"needs `{missing.name}`, which is not installed: pip install 'policyguard-engine[bundle]'"
    ) from None

_MAX_KEY_BYTES = 65_536
_HOW = "openssl genpkey -algorithm ed25519 -out key.pem; openssl pkey -in key.pem -pubout"


def sign(bundle: Bundle, key_file: Path) -> Bundle:
    """Return the bundle with one more signature. `BundleError` if the key cannot be used."""
    key = _read_private(key_file)
    id_ = _key_id(key.public_key())
    others = tuple(one for one in bundle.signatures if one.key != id_)
    made = Signature(id_, key.sign(bundle.signed_bytes))
    return msgspec.structs.replace(bundle, signatures=(*others, made))


def find_signers(bundle: Bundle, key_files: Iterable[Path]) -> dict[Path, str]:
    """Return the key files whose keys have signed a bundle, with their ids.

    `BundleError` if a file is no public key.
    """
    found: dict[Path, str] = {}
    for file in key_files:
        key = _read_public(file)
        id_ = _key_id(key)
        for signature in bundle.signatures:
            if signature.key == id_ and _is_valid(key, signature.signature, bundle.signed_bytes):
                found[file] = id_
    return found


def _is_valid(key: Ed25519PublicKey, signature: bytes, signed: bytes) -> bool:
    try:
        key.verify(signature, signed)
    except InvalidSignature:
        return False
    return True


def _key_id(key: Ed25519PublicKey) -> str:
    raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return f"ed25519:{hashlib.sha256(raw).hexdigest()[:16]}"


def _read_private(file: Path) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(_read(file), password=None)
    except TypeError:
        raise BundleError(
            f"{file}: is encrypted; decrypt it for the time of signing: openssl pkey -in {file}"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise BundleError(f"{file}: is no private key in PEM; make one: {_HOW}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise BundleError(f"{file}: is no Ed25519 key; make one: {_HOW}")
    return key


def _read_public(file: Path) -> Ed25519PublicKey:
    data = _read(file)
    if b"PRIVATE KEY" in data:
        raise BundleError(f"{file}: is a private key; hosts need the public one: {_HOW}")
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise BundleError(f"{file}: is no public key in PEM; make one: {_HOW}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise BundleError(f"{file}: is no Ed25519 key; make one: {_HOW}")
    return key


def _read(file: Path) -> bytes:
    try:
        with open_input(file) as opened:
            return opened.read(_MAX_KEY_BYTES)
    except OSError as error:
        raise BundleError(f"{file}: cannot be read: {error.strerror}; name a key file") from None
