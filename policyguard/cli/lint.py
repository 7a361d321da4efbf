"""`policyguard lint`: check policy files."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from policyguard.cli.options import FilePath, path_option
from policyguard.cli.terminal.status import (
    policy_error,
    suggest_next,
    terminal_style,
    usage_error,
)
from policyguard.compiler.load.loader import standard_input
from policyguard.engines.source import MAX_FILE_BYTES
from policyguard.lint import LintResult, NothingToLintError, UnknownCodeError, fix, lint_paths
from policyguard.lint.catalog import PAGES
from policyguard.lint.config import Config, ConfigError, find_config, read_config
from policyguard.lint.discovery import STANDARD_INPUT
from policyguard.report.escape import for_terminal
from policyguard.report.findings.diagnostics import Findings, render_text
from policyguard.report.findings.formats import FORMATS


@click.command(epilog="Example: policyguard lint policies/ --strict")
@click.argument("paths", nargs=-1, type=FilePath())
@click.option("--format", "output_format", type=click.Choice(list(FORMATS)), default="text")
@click.option("--strict/--no-strict", default=None, help="Warnings count as errors.")
@click.option(
    "--select",
    multiple=True,
    metavar="CODES",
    help="Report only these codes, phases or globs, separated by commas. Repeatable.",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="CODES",
    help="Ignore these codes (overrides --select), except load errors.",
)
@click.option("--fix", "apply_fixes", is_flag=True, help="Fix what can be fixed safely.")
@path_option(
    "--config",
    help_="The settings file.  [default: .policyguard.toml, or [tool.policyguard.lint] in "
    "pyproject.toml, here or in a parent folder of the repository]",
)
@click.pass_context
def lint(
    context: click.Context,
    paths: tuple[Path, ...],
    output_format: str,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    config: Path | None,
    *,
    strict: bool | None,
    apply_fixes: bool,
) -> None:
    """Check policy files for errors and likely mistakes.

    PATHS are files, folders and packs' names; - is standard input. The default is the paths in the
    settings, else policyguard.yaml here, else the policies/ folder. Options override the settings.

    Exit codes: 0 (clean, or warnings and notes only); 1 (errors; with --strict warnings, too); 2
    (misuse, or nothing to lint).
    """
    try:
        settings = _load_settings(config)
        chosen = {
            "select": _split_codes(select) or settings.select,
            "ignore": _split_codes(ignore) or settings.ignore,
        }
        named = paths or settings.paths
        if STANDARD_INPUT in named:
            if apply_fixes:
                usage_error("--fix needs a file; standard input cannot be changed")
            standard_input.set(sys.stdin.buffer.read(MAX_FILE_BYTES + 1))
        if apply_fixes:
            fixed, files, result = fix(named, **chosen)
            changed = for_terminal(", ".join(map(str, files)) or "no file")
            click.echo(f"fixed: {fixed}, in {changed}", err=True)
        else:
            result = lint_paths(named, **chosen)
    except ConfigError as error:
        policy_error(error)
    except (NothingToLintError, UnknownCodeError) as error:
        usage_error(error)
    except OSError as error:
        usage_error(f"`{error.filename}`: {(error.strerror or 'cannot be used').lower()}")
    strict = settings.strict if strict is None else strict
    findings = _to_findings(result, strict=strict)
    if output_format == "text":
        report = render_text(findings.diagnostics, terminal_style())
    else:
        report = FORMATS[output_format](findings)
    if report or output_format not in ("text", "concise"):
        click.echo(report)
    click.echo(result.summary, err=True)
    if result.diagnostics:
        suggest_next(_next_step(result, fixed=apply_fixes), output_format)
    context.exit(1 if any(map(findings.has_failed, result.diagnostics)) else 0)


def _next_step(result: LintResult, *, fixed: bool) -> str:
    explain = f"`policyguard explain {result.diagnostics[0].code}` explains the first one"
    fixable = sum(bool(found.edits) for found in result.diagnostics)
    if not fixable or fixed:
        return explain
    return f"--fix fixes {fixable} of {len(result.diagnostics)}; {explain}"


def _load_settings(config: Path | None) -> Config:
    file = config or find_config(Path())
    try:
        return read_config(file) if file is not None else Config()
    except OSError as error:
        error.filename = error.filename or file  # a failed read does not name it
        raise


def _split_codes(options: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(code.strip() for codes in options for code in codes.split(",") if code.strip())


def _to_findings(result: LintResult, *, strict: bool) -> Findings:
    return Findings(
        files=tuple(map(os.path.normpath, result.files)),
        diagnostics=tuple(result.diagnostics),
        ignored=tuple(result.ignored),
        pages=PAGES,
        broken=frozenset(map(os.path.normpath, result.broken)),
        strict=strict,
    )
