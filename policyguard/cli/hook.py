"""`policyguard hook`: install, remove and check the hooks of coding agents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from policyguard.adapters.client.location import locate_socket
from policyguard.adapters.installation.installations import INSTALLATIONS
from policyguard.adapters.installation.records import (
    Records,
    read_records,
    record_change,
    undo,
    write_records,
)
from policyguard.adapters.installation.settings import (
    Installation,
    SettingsError,
    hook_command_line,
    read_settings,
    show_change,
    write_settings,
)
from policyguard.cli.options import file_option, named_store_option, policy_option
from policyguard.cli.terminal.status import policy_error, reports_errors, status, usage_error
from policyguard.compiler import compile_policy
from policyguard.model.diagnostic import PolicyError
from policyguard.model.errors import PolicyguardError
from policyguard.report.escape import for_terminal
from policyguard.store.paths import default_store_path, resolve_store

_host = click.argument("host", type=click.Choice([*INSTALLATIONS]))
_settings = file_option("--settings", help_="The host's settings file.  [default: the user's]")
_yes = click.option("--yes", is_flag=True, help="Do not ask.")


@click.group()
def hook() -> None:
    """Let a coding agent ask policyguard before each call of a tool."""


@hook.command(epilog="Example: policyguard hook install claude-code --policy policyguard.yaml")
@_host
@policy_option
@named_store_option()
@_settings
@click.option(
    "--wait",
    type=click.IntRange(0, 3000),
    default=0,
    help="For how many seconds a call waits for a person, if it needs an approval.",
)
@_yes
@reports_errors(PolicyguardError, OSError)
def install(
    host: str,
    policies: tuple[str, ...],
    store: str | Path | None,
    settings: Path | None,
    wait: int,
    *,
    yes: bool,
) -> None:
    """Show and write the entries in the settings of HOST."""
    try:
        compile_policy(policies)
    except PolicyError as error:
        policy_error(error)
    chosen = INSTALLATIONS[host]
    path = resolve_store(store)
    socket = locate_socket(policies, path)

    def command(report: bool) -> str:
        return hook_command_line(host, [*policies], path, socket, report=report, wait=wait)

    file = settings or chosen.default_file()
    before = read_settings(file)
    original = _undo(file, before)
    with _naming(file):
        if original is None:  # else hooks of an earlier installation would be put back
            chosen.check(before)
            original = chosen.uninstall(before)
        chosen.check(original)
        after = chosen.install(original, command, wait)
    record = record_change((), {}, original, after)
    if not original:
        record = msgspec.structs.replace(record, was_empty=_was_empty(file, before))
    _apply(file, before, after, (record,), yes=yes)
    for step in (*chosen.next_steps, f"policyguard hook doctor {host} --prove"):
        click.echo(f"next  {step}")


@hook.command(epilog="Example: policyguard hook uninstall claude-code")
@_host
@_settings
@_yes
@reports_errors(PolicyguardError, OSError)
def uninstall(host: str, settings: Path | None, *, yes: bool) -> None:
    """Remove policyguard's entries from the settings of HOST.

    The file becomes what it was, unless it was changed since: then the entries alone go.
    """
    file = settings or INSTALLATIONS[host].default_file()
    before = read_settings(file)
    original = _undo(file, before)
    with _naming(file):
        after = INSTALLATIONS[host].uninstall(before) if original is None else original
    _apply(file, before, after, (), yes=yes, is_kept=_was_empty(file, before))


@hook.command(epilog="Example: policyguard hook doctor claude-code --prove")
@_host
@_settings
@click.option("--prove", "proves", is_flag=True, help="Run the host against a scripted model.")
@click.option("--program", help="The host's program.  [default: the one on PATH]")
@reports_errors(PolicyguardError, OSError)
def doctor(host: str, settings: Path | None, program: str | None, *, proves: bool) -> None:
    """Check that HOST asks policyguard, and that a refusal holds.

    With --prove, an agent in a scratch folder tries to delete a file, also with its hook broken.
    Exits with 1 if something is not as it should be. What a host cannot enforce, as its page says,
    does not count.
    """
    chosen = INSTALLATIONS[host]
    file = settings or chosen.default_file()
    held = _report(f"{file}", *_check_settings(chosen, read_settings(file)))
    if proves:
        from policyguard.adapters.proof.proof import CONTROL, find_program, prove
        from policyguard.adapters.proof.runners import RUNNERS

        found = find_program(RUNNERS[host], program)
        if found is None:
            usage_error(f"`{program or RUNNERS[host].program}` is not installed; name --program")
        for result in prove(host, RUNNERS[host], found):
            if result.name == CONTROL:
                works = result.enforced is False
                text = "deleted, as it should be" if works else "NOT DELETED: nothing is proved"
                held &= _report(result.name, text, works)
            elif result.enforced is None:
                held &= _report(result.name, "NO ATTEMPT was made", False)
            elif not result.enforced and result.name in RUNNERS[host].limits:
                held &= _report(result.name, "not enforced, a limit of this host", True)
            else:
                text = "enforced" if result.enforced else "NOT ENFORCED"
                held &= _report(result.name, text, result.enforced)
    if not held:
        click.get_current_context().exit(1)


def _check_settings(installation: Installation, text: str) -> tuple[str, bool]:
    """Return what to say of a host's settings, and whether our hooks are in force there."""
    try:
        installation.check(text)
        if installation.uninstall(text) == text:
            return "NOT INSTALLED", False
    except SettingsError as error:
        return f"NOT IN FORCE: {for_terminal(str(error))}", False
    return "hooks installed", True


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Let errors of the settings name their file."""
    try:
        yield
    except SettingsError as error:
        raise SettingsError(f"{file}: {error}") from None


def _report(subject: str, text: str, holds: bool) -> bool:
    click.echo(f"{for_terminal(subject):40}  {text}")
    return holds


def _records_file() -> Path:
    return default_store_path().with_name("hook-settings.json")


def _undo(file: Path, text: str) -> str | None:
    """Return the settings as they were before `install`; None if that is not known."""
    records = read_records(_records_file(), file)
    return undo(text, records[-1]) if records else None


def _was_empty(file: Path, text: str) -> bool:
    """Whether a file was there without a text, before hooks were installed."""
    records = read_records(_records_file(), file)
    return any(record.was_empty for record in records) or (not text and file.exists())


def _apply(
    file: Path, before: str, after: str, records: Records, *, yes: bool, is_kept: bool = False
) -> None:
    change = show_change(file, before, after)
    if not change:
        status(f"{file} is as it should be")
        return
    click.echo("\n".join(map(for_terminal, change.splitlines())))
    if not yes:
        click.confirm(f"Write {file}?", abort=True)
    write_records(_records_file(), file, records)
    write_settings(file, after, is_kept=is_kept)
