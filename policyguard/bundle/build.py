"""Makes a bundle of a policy: all files that it reads, and its tests, which must pass."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory

from policyguard.bundle.bundle import MAX_BYTES, Bundle, Manifest, hash_text, make_bundle
from policyguard.bundle.check import check_policy, run_tests
from policyguard.bundle.errors import BundleError
from policyguard.bundle.unpack import unpack
from policyguard.compiler import compile_policy
from policyguard.engines.input_file import open_input
from policyguard.testing.discovery import find_tests
from policyguard.testing.suite import resolve_reference
from policyguard.testing.suite_reader import read_suite


def build(
    policies: Sequence[Path],
    tests: Sequence[Path],
    *,
    root: Path | None = None,
    version: int,
    expires_after: timedelta | None,
    now: datetime,
) -> Bundle:
    """Return the unsigned bundle of a policy, compiled, linted and tested as hosts will have it.

    Its files are named from `root` on, by default the folder that has all files of the policy:
    tests do not move where hosts find it. The traces that tests replay are in it, too.

    Raises `BundleError`; `PolicyError` for a policy that does not compile, and
    `NothingToTestError`.
    """
    compiled = compile_policy([*policies], cache=False)
    files = [Path(one.key) for one in compiled.inputs.own_files]
    named = [Path(os.path.realpath(policy)) for policy in policies]
    tested = [Path(os.path.realpath(test)) for test in (find_tests(tests) if tests else ())]
    traces = [Path(os.path.realpath(trace)) for trace in _list_traces(tested)]
    if root is None:
        root = Path(os.path.commonpath([*(one.parent for one in files)]))
    root = Path(os.path.realpath(root))
    contents = {_name(path, root): _read_text(path) for path in (*files, *tested, *traces)}
    bundle = make_bundle(
        Manifest(
            name=compiled.policy.name,
            version=version,
            created=now.replace(microsecond=0),
            expires=(now + expires_after).replace(microsecond=0)
            if expires_after is not None
            else None,
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


def _list_traces(tests: Sequence[Path]) -> Iterator[Path]:
    """Yield the traces that tests replay; a test file that is broken is reported when it runs."""
    for file in tests:
        suite = read_suite(file).suite
        if suite is None:
            continue
        for test in suite.tests:
            if test.trace is not None:
                yield Path(resolve_reference(suite.file, test.trace))


def _name(path: Path, root: Path) -> str:
    if not path.is_relative_to(root):
        raise BundleError(f"{path}: is not in {root}; name a folder that has both with --root")
    return path.relative_to(root).as_posix()


def _read_text(path: Path) -> str:
    try:
        with open_input(path) as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise BundleError(f"{path}: larger than a bundle may be; use a part of it")
        return data.decode()
    except UnicodeDecodeError:
        raise BundleError(f"{path}: is no text in UTF-8; write it so") from None


def _own_version() -> str:
    try:
        return version("policyguard-engine")
    except PackageNotFoundError:  # run from its sources
        return ""
