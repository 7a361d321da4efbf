"""What a host checks of a bundle before it uses it: who signed it, its time, and the policy."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from policyguard.bundle.bundle import Bundle, format_time
from policyguard.bundle.errors import BundleError
from policyguard.compiler import compile_policy
from policyguard.compiler.pipeline import policy_error
from policyguard.lint.linter import lint_paths
from policyguard.model.diagnostic import PolicyError
from policyguard.report.policy_tests.rendering import render_text
from policyguard.testing.runner import run_files


def check_signature(bundle: Bundle, key_files: Sequence[Path], name: str) -> dict[Path, str]:
    """Return which of the trusted keys have signed a bundle. `BundleError` if none has."""
    from policyguard.bundle.signing import find_signers  # needs `cryptography`

    found = find_signers(bundle, key_files)
    if not found:
        theirs = ", ".join(sorted({one.key[:40] for one in bundle.signatures})) or "no key"
        raise BundleError(
            f"{name}: not signed by a key that is trusted here, but by {theirs}; "
            "trust that key with --key, if it is yours, or find out who made the bundle"
        )
    return found


def is_signed(bundle: Bundle, key_files: Sequence[Path]) -> bool:
    """Whether a trusted key has signed a bundle. `BundleError` if a file is no public key."""
    from policyguard.bundle.signing import find_signers  # needs `cryptography`

    return bool(find_signers(bundle, key_files))


def check_time(bundle: Bundle, now: datetime, name: str) -> None:
    """Raise `BundleError` for a bundle that has expired."""
    expires = bundle.manifest.expires
    if expires is not None and now >= expires:
        raise BundleError(
            f"{name}: expired on {format_time(expires)}; publish a later one, or find out why "
            "there is none: who keeps it back keeps an old policy in force"
        )


def check_policy(bundle: Bundle, folder: Path) -> str:
    """Compile and lint the unpacked policy; return its digest here.

    `BundleError` if it has errors, or packs of it are not those that it was made with.
    """
    manifest = bundle.manifest
    policies = [folder / name for name in manifest.policies]
    try:
        compiled = compile_policy([*policies], cache=False)
    except PolicyError as error:
        raise BundleError(f"{manifest.name}: does not compile here:\n{error}") from None
    packs = compiled.inputs.pack_files
    if packs != manifest.packs:
        odd = min(name for name, _ in packs.items() ^ manifest.packs.items())
        raise BundleError(
            f"{manifest.name}: the pack file `{odd}` here is not the one it was tested with "
            f"(policyguard {manifest.policyguard or '?'}); use the same version on both"
        )
    outside = [
        one.display_name
        for one in compiled.inputs.own_files
        if not Path(one.key).is_relative_to(folder.resolve())
    ]
    if outside:
        raise BundleError(f"{manifest.name}: reads a file that is not in it: {outside[0]}")
    errors = [one for one in lint_paths(policies).diagnostics if one.severity == "error"]
    if errors:
        raise BundleError(f"{manifest.name}: has errors:\n{policy_error(errors)}")
    return compiled.evaluator.digest


def run_tests(bundle: Bundle, folder: Path) -> None:
    """Run the tests of an unpacked bundle. `BundleError` if one fails."""
    if not bundle.manifest.tests:
        return
    report = run_files([folder / name for name in bundle.manifest.tests])
    if report.exit_code:
        raise BundleError(f"{bundle.manifest.name}: its tests fail:\n{render_text(report)}")
