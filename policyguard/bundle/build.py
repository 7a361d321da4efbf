"""Makes a bundle of a policy: all files that it reads, and its tests, which must pass."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory

from policyguard.bundle.bundle import Bundle, Manifest, hash_text, make_bundle
from policyguard.bundle.check import check_policy, run_tests
from policyguard.bundle.errors import BundleError
from policyguard.bundle.unpack import unpack
from policyguard.compiler import compile_policy
from policyguard.testing.discovery import find_tests


def build(
    policies: Sequence[Path],
    tests: Sequence[Path],
    *,
    version: int,
    expires_after: timedelta | None,
    now: datetime,
) -> Bundle:
    """Return the unsigned bundle of a policy, compiled, linted and tested as hosts will have it.

    Raises `BundleError`; `PolicyError` for a policy that does not compile, and
    `NothingToTestError`.
    """
    compiled = compile_policy([*policies], cache=False)
    files = [Path(one.key) for one in compiled.inputs.own_files]
    named = [Path(os.path.realpath(policy)) for policy in policies]
    tested = [Path(os.path.realpath(test)) for test in (find_tests(tests) if tests else ())]
    root = Path(os.path.commonpath([*(one.parent for one in (*files, *tested))]))
    contents = {_name(path, root): _read_text(path) for path in (*files, *tested)}
    bundle = make_bundle(
        Manifest(
            name=compiled.policy.name,
            version=version,
            created=now.replace(microsecond=0),
            expires=(now + expires_after).replace(microsecond=0) if expires_after else None,
            policies=tuple(_name(path, root) for path in named),
            tests=tuple(_name(path, root) for path in tested),
            files={name: hash_text(text) for name, text in contents.items()},
            packs=compiled.inputs.pack_files,
            environ=tuple(sorted(compiled.inputs.environ)),
            digest=compiled.evaluator.digest,
            policyguard=_own_version(),
        ),
        contents,
    )
    with TemporaryDirectory() as folder:
        place = Path(folder) / "policy"
        unpack(bundle, place)
        check_policy(bundle, place)
        run_tests(bundle, place)
    return bundle


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError:
        raise BundleError(f"{path}: is no text in UTF-8; write it so") from None


def _own_version() -> str:
    try:
        return version("policyguard-engine")
    except PackageNotFoundError:  # run from its sources
        return ""
