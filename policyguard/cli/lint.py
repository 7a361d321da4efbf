"""`policyguard lint`: is this policy right?"""

from __future__ import annotations

import os
from pathlib import Path

import click

from policyguard.cli.console import policy_error, usage_error
from policyguard.lint import LintResult, NothingToLintError, UnknownCodeError, fix, lint_paths
from policyguard.lint.catalog import PAGES
from policyguard.lint.config import Config, ConfigError, find_config, read_config
from policyguard.report.escape import for_terminal
from policyguard.report.findings.findings import Findings
from policyguard.report.findings.formats import FORMATS


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(list(FORMATS)), default="text")
@click.option("--strict/--no-strict", default=None, help="Warnings count as errors.")
@click.option(
    "--select",
    multiple=True,
    metavar="CODES",
    help="Report only these: codes, phases and globs, separated by commas. Repeat it for more.",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="CODES",
    help="Do not report these; it wins over --select. What keeps a policy from loading always is.",
)
@click.option("--fix", "mend", is_flag=True, help="Make the changes that are certain.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="A file with settings.  [default: .policyguard.toml, or [tool.policyguard.lint] in "
    "pyproject.toml, here or above in the repository]",
)
@click.pass_context
def lint(
    context: click.Context,
    paths: tuple[Path, ...],
    form: str,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    config: Path | None,
    *,
    strict: bool | None,
    mend: bool,
) -> None:
    """Check policy files: what keeps them from loading, and what is legal and still wrong.

    PATHS are files and folders; without any, those of the settings, else policyguard.yaml here,
    else the policies/ folder. A flag wins over the settings.

    Exits with 0 (clean, or warnings only), 1 (errors; with --strict anything), 2 (misuse, or
    nothing found to lint).
    """
    try:
        settings = _load_settings(config)
        chosen = {
            "select": _split_codes(select) or settings.select,
            "ignore": _split_codes(ignore) or settings.ignore,
        }
        named = paths or settings.paths
        if mend:
            mended, files, result = fix(named, **chosen)
            places = for_terminal(", ".join(map(str, files)) or "no file")
            click.echo(f"mended: {mended}, in {places}", err=True)
        else:
            result = lint_paths(named, **chosen)
    except ConfigError as error:
        policy_error(error)
    except (NothingToLintError, UnknownCodeError) as error:
        usage_error(error)
    except OSError as error:
        usage_error(f"`{error.filename}`: {(error.strerror or 'cannot be used').lower()}")
    told = FORMATS[form](_to_findings(result))
    if told or form != "text":
        click.echo(told)
    click.echo(result.summary, err=True)
    strict = settings.strict if strict is None else strict
    failing = [found for found in result.diagnostics if strict or found.severity == "error"]
    context.exit(1 if failing else 0)


def _load_settings(config: Path | None) -> Config:
    file = config or find_config(Path())
    return read_config(file) if file is not None else Config()


def _split_codes(given: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(code.strip() for codes in given for code in codes.split(",") if code.strip())


def _to_findings(result: LintResult) -> Findings:
    return Findings(
        files=tuple(map(os.path.normpath, result.files)),
        diagnostics=tuple(result.diagnostics),
        ignored=tuple(result.ignored),
        pages=PAGES,
        broken=frozenset(map(os.path.normpath, result.broken)),
    )
