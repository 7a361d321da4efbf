"""`policyguard bundle`: a policy in one signed file, and hosts that stay at the latest."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from msgspec.structs import replace

from policyguard.bundle.bundle import MAX_BYTES, Bundle, decode, format_time
from policyguard.bundle.check import check_policy, check_signature, check_time, run_tests
from policyguard.bundle.errors import BundleError
from policyguard.bundle.pull import describe, pull, utc_now
from policyguard.bundle.unpack import unpack
from policyguard.cli.options import FilePath, path_option
from policyguard.cli.terminal.output import STDOUT, write
from policyguard.cli.terminal.status import reports_errors, status, suggest_next, usage_error
from policyguard.compiler.load.scalars import parse_duration
from policyguard.engines.input_file import open_input
from policyguard.model.diagnostic import PolicyError
from policyguard.report.escape import for_terminal, json_document
from policyguard.testing.discovery import NothingToTestError

_EXIT_REFUSED = 1
_SECOND = 10**9
_MAX_LIFETIME_S = 36_500 * 86_400
"""A hundred years: the calendar of computers ends."""

_keys_option = click.option(
    "--key",
    "keys",
    multiple=True,
    required=True,
    type=FilePath(dir_okay=False),
    help="A public key (PEM) that is trusted; may be repeated.",
)


@click.group()
def bundle() -> None:
    """Build, sign, verify and fetch a policy as one signed file."""


@bundle.command(
    "build",
    epilog="Example: policyguard bundle build policyguard.yaml --test tests.yaml --version 7 "
    "-o fleet.bundle.json",
)
@click.argument("policies", nargs=-1, required=True, type=FilePath())
@click.option("--test", "tests", multiple=True, type=FilePath(), help="Tests.")
@click.option(
    "--root",
    type=FilePath(file_okay=False, exists=True),
    help="Names are from this folder on.  [default: the one that has all files of the policy]",
)
@click.option("--version", type=click.IntRange(1), required=True, help="Higher than the last one.")
@click.option("--expires", default="90d", show_default=True, help="After this time; or `never`.")
@path_option("-o", "--output", help_="The file to write.", required=True, dir_okay=False)
@reports_errors(BundleError, NothingToTestError, OSError)
def build_command(
    policies: tuple[Path, ...],
    tests: tuple[Path, ...],
    root: Path | None,
    version: int,
    expires: str,
    output: Path,
) -> None:
    """Put a policy, its files and its tests into one.

    These are POLICIES, and all that they extend or read. The policy is compiled, linted and tested
    as hosts will have it. Exit codes: 0; 2 (misuse, or a policy that is broken or fails its tests).
    """
    from policyguard.bundle.build import build  # imports the whole compiler

    lifetime = None if expires == "never" else parse_duration(expires)
    if lifetime is None and expires != "never":
        usage_error(f"--expires {expires}: not a time such as 90d, and not `never`")
    after = None if lifetime is None else timedelta(seconds=_whole_seconds(lifetime, expires))
    try:
        made = build(
            policies, tests, root=root, version=version, expires_after=after, now=utc_now()
        )
    except PolicyError as error:
        usage_error(error)
    write(output, made.encode())
    click.echo(_describe(made), err=output == STDOUT)
    suggest_next(f"sign it: policyguard bundle sign {output} --key key.pem")


@bundle.command("sign", epilog="Example: policyguard bundle sign fleet.bundle.json --key key.pem")
@click.argument("file", type=FilePath(dir_okay=False))
@click.option("--key", required=True, type=FilePath(dir_okay=False))
@reports_errors(BundleError, OSError)
def sign_command(file: Path, key: Path) -> None:
    """Add a signature to a bundle, with a private key (Ed25519, PEM)."""
    from policyguard.bundle.signing import sign

    signed = sign(_read(file), key)
    write(file, signed.encode())
    click.echo(f"signed by {', '.join(one.key for one in signed.signatures)}")


@bundle.command(
    "verify", epilog="Example: policyguard bundle verify fleet.bundle.json --key public.pem"
)
@click.argument("file", type=FilePath(dir_okay=False))
@_keys_option
@click.option("--test", "with_tests", is_flag=True, help="Run its tests, too.")
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text")
@click.pass_context
def verify_command(
    context: click.Context,
    file: Path,
    keys: tuple[Path, ...],
    output_format: str,
    *,
    with_tests: bool,
) -> None:
    """Check who signed a bundle, its time, and its policy.

    Exit codes: 0; 1 (it may not be used); 2 (misuse).
    """
    try:
        found = _read(file)
        signers = check_signature(found, keys, str(file))
        check_time(found, utc_now(), str(file))
        with TemporaryDirectory() as folder:
            place = Path(folder) / "policy"
            unpack(found, place)
            digest = check_policy(found, place)
            if with_tests:
                run_tests(found, place)
    except BundleError as error:
        status(str(error))
        context.exit(_EXIT_REFUSED)
    if output_format == "json":
        click.echo(json_document(_figures(found, digest, [*signers.values()])))
        return
    click.echo(_describe(found))
    for key, id_ in signers.items():
        click.echo(f"  signed by {id_} ({for_terminal(str(key))})")


@bundle.command(
    "pull",
    epilog="Example: policyguard bundle pull https://policies.example/fleet.bundle.json "
    "--to /etc/policyguard --key public.pem --every 1m",
)
@click.argument("source")
@click.option(
    "--to",
    "folder",
    required=True,
    help="The folder of the policy.",
    type=FilePath(file_okay=False),
)
@_keys_option
@click.option("--every", default="", help="Go on, and look this often, such as 1m.")
@click.pass_context
def pull_command(
    context: click.Context, source: str, folder: Path, keys: tuple[Path, ...], every: str
) -> None:
    """Bring a folder to the latest bundle of a source.

    SOURCE is a file, a folder of bundles, or an HTTP address. The policy is then in
    FOLDER/current/policy, where guards load it. A bundle that is not signed by a trusted key, has
    expired, is older than the one in force, or does not hold here is refused, and the last good one
    stays. Exit codes: 0; 1 (refused); 2 (misuse).
    """
    interval = parse_duration(every) if every else 0
    if interval is None:
        usage_error(f"--every {every}: not a time such as 1m")
    shown = ""
    while True:
        try:
            pulled = pull(source, folder, keys, now=utc_now())
        except BundleError as error:
            if str(error) != shown:
                status(str(error))
            shown = str(error)
            if not interval:
                context.exit(_EXIT_REFUSED)
        else:
            if describe(pulled) != shown:
                click.echo(for_terminal(describe(pulled)))
                for path in pulled.policies:
                    click.echo(f"  {for_terminal(str(path))}")
            shown = describe(replace(pulled, is_new=False, repaired=False))
            if not interval:
                return
        time.sleep(interval / _SECOND)


def _whole_seconds(lifetime: int, expires: str) -> int:
    seconds = lifetime // _SECOND
    if not 0 < seconds <= _MAX_LIFETIME_S:
        usage_error(f"--expires {expires}: not between 1s and 36500d; or write `never`")
    return seconds


def _read(file: Path) -> Bundle:
    try:
        with open_input(file) as opened:
            return decode(opened.read(MAX_BYTES + 1), str(file))
    except OSError as error:
        raise BundleError(f"{file}: cannot be read: {error.strerror}; name a bundle") from None


def _describe(found: Bundle) -> str:
    manifest = found.manifest
    files = "1 file" if len(manifest.files) == 1 else f"{len(manifest.files)} files"
    tests = f", {len(manifest.tests)} of them tests" if manifest.tests else ", no tests"
    expires = format_time(manifest.expires)
    return for_terminal(
        f"{manifest.name} version {manifest.version}: {files}{tests}; expires {expires}"
    )


def _figures(found: Bundle, digest: str, signers: list[str]) -> dict[str, Any]:
    manifest = found.manifest
    return {
        "name": manifest.name,
        "version": manifest.version,
        "created": manifest.created.isoformat(),
        "expires": manifest.expires.isoformat() if manifest.expires else None,
        "files": manifest.files,
        "packs": manifest.packs,
        "sha256": found.sha256,
        "digest": digest,
        "signed_by": signers,
    }
