"""A bundle: the files of a policy, a manifest of them, and signatures of the manifest.

It is one JSON document. The manifest is kept as text, so that a signature is about its bytes and
not about one way to write them down.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import PurePosixPath

import msgspec

from policyguard.bundle.errors import BundleError

MAX_BYTES = 16 * 1024 * 1024
"""The size of a bundle, encoded."""
_MAX_FILES, _MAX_SIGNATURES, _MAX_NAME = 1000, 32, 300
_PREFIX = b"policyguard bundle 1\n"
"""What signed bytes begin with, so that no signature of something else is one of a manifest."""


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a bundle says of itself; who signs it signs all of this.

    `version` grows with each bundle of a policy. Times are in UTC. `policies` are the files to
    load, in this order; `tests` are those to test. `files` are the SHA-256 of the bundle's files by
    name, `packs` those of the files of packs that the policy extends, which hosts have. `environ`
    are the environment variables that it reads, `digest` is that of the compiled policy with their
    values where it was made.
    """

    name: str
    version: int
    created: datetime
    expires: datetime | None = None
    policies: tuple[str, ...]
    tests: tuple[str, ...] = ()
    files: dict[str, str]
    packs: dict[str, str] = {}
    environ: tuple[str, ...] = ()
    digest: str
    policyguard: str = ""


class Signature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A signature of the manifest, and the id of its key, which only helps to find the key."""

    key: str
    signature: bytes


class _Document(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    policyguard_bundle: int
    manifest: str
    signatures: tuple[Signature, ...] = ()
    files: dict[str, str]


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle as it was read: its files are those of its manifest, its signatures may be anyone's.

    `sha256` identifies the manifest.
    """

    manifest: Manifest
    text: str
    signatures: tuple[Signature, ...]
    files: dict[str, str]

    @property
    def sha256(self) -> str:
        """The SHA-256 (hex) of the manifest."""
        return hash_text(self.text)

    @property
    def signed_bytes(self) -> bytes:
        """What a signature is about."""
        return _PREFIX + self.text.encode()

    def encode(self) -> bytes:
        """Return the bundle as a file."""
        document = _Document(
            policyguard_bundle=1,
            manifest=self.text,
            signatures=self.signatures,
            files=dict(sorted(self.files.items())),
        )
        return msgspec.json.format(msgspec.json.encode(document)) + b"\n"


def hash_text(text: str) -> str:
    """Return the SHA-256 (hex) of a text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def make_bundle(manifest: Manifest, files: dict[str, str]) -> Bundle:
    """Return an unsigned bundle. `BundleError` if it is too large or has odd names."""
    text = msgspec.json.encode(manifest, order="sorted").decode()
    bundle = Bundle(manifest=manifest, text=text, signatures=(), files=files)
    return decode(bundle.encode(), "the bundle")


def decode(data: bytes, name: str) -> Bundle:
    """Read a bundle, and hold its files against its manifest. Raises `BundleError`."""
    if len(data) > MAX_BYTES:
        raise BundleError(f"{name}: larger than {MAX_BYTES >> 20} MiB; bundle fewer files")
    try:
        document = msgspec.json.decode(data, type=_Document)
        if document.policyguard_bundle != 1:
            raise BundleError(
                f"{name}: version {document.policyguard_bundle} of the format is not known here; "
                "use a later version of policyguard"
            )
        manifest = msgspec.json.decode(document.manifest, type=Manifest)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BundleError(f"{name}: no bundle of a policy ({error}); build it again") from None
    problem = _find_problem(manifest, document)
    if problem:
        raise BundleError(f"{name}: {problem}")
    return Bundle(
        manifest=manifest,
        text=document.manifest,
        signatures=document.signatures,
        files=document.files,
    )


def _find_problem(manifest: Manifest, document: _Document) -> str:
    files = document.files
    if len(files) > _MAX_FILES or len(document.signatures) > _MAX_SIGNATURES:
        return f"more than {_MAX_FILES} files or {_MAX_SIGNATURES} signatures"
    if files.keys() != manifest.files.keys():
        odd = sorted(files.keys() ^ manifest.files.keys())[0]
        return f"the file `{odd:.80}` is not both in the manifest and in the bundle: it was altered"
    for name, text in files.items():
        if not _is_plain(name):
            return f"the name `{name:.80}` is not that of a file inside the bundle"
        if hash_text(text) != manifest.files[name]:
            return f"the file `{name:.80}` is not that of the manifest: it was altered"
    if not manifest.policies or not {*manifest.policies, *manifest.tests} <= files.keys():
        return "the manifest names a policy or test that is not in the bundle"
    if manifest.version < 1:
        return "the version is not a number from 1 on"
    for time in (manifest.created, manifest.expires):
        if time is not None and time.tzinfo is None:
            return "a time has no zone"
    folders = {parent.as_posix() for name in files for parent in PurePosixPath(name).parents}
    both = sorted(folders & files.keys())
    return f"`{both[0]}` is a file and a folder" if both else ""


def _is_plain(name: str) -> bool:
    """Whether a name is that of a file below a folder, whatever the system."""
    parts = name.split("/")
    return (
        len(name) <= _MAX_NAME
        and name.isprintable()
        and not any(char in name for char in '\\:*?"<>|')
        and all(part and not part.startswith(".") and part[-1] not in ". " for part in parts)
    )


def format_time(time: datetime | None) -> str:
    """Return a time in UTC, to the second; `never` for none."""
    return "never" if time is None else f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
