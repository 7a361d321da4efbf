"""`policyguard test`: run policy tests."""

from __future__ import annotations

from pathlib import Path

import click

from policyguard.cli.options import FilePath
from policyguard.cli.terminal.status import suggest_next, usage_error
from policyguard.report.policy_tests.github import render_github
from policyguard.report.policy_tests.junit import render_junit
from policyguard.report.policy_tests.rendering import render_json, render_text
from policyguard.testing.discovery import NothingToTestError, find_tests
from policyguard.testing.runner import run_files

_EXIT_FAILURES = 1
RENDER = {
    "text": render_text,
    "json": render_json,
    "junit": render_junit,
    "github": render_github,
}


@click.command(epilog="Example: policyguard test policies/ --coverage")
@click.argument("paths", nargs=-1, type=FilePath())
@click.option("--format", "output_format", type=click.Choice(list(RENDER)), default="text")
@click.option("--coverage", is_flag=True, help="Show entries of the policy that no test reached.")
@click.option("--keep-going", is_flag=True, help="Go on with a test after a failing step.")
@click.option("-k", "name", default="", metavar="TEXT", help="Run tests whose name contains TEXT.")
@click.pass_context
def test(
    context: click.Context,
    paths: tuple[Path, ...],
    output_format: str,
    *,
    coverage: bool,
    keep_going: bool,
    name: str,
) -> None:
    """Run policy tests: calls and the decisions to expect.

    PATHS are test files (tests.yaml, *.tests.yaml) and folders. The default is the policies/
    folder, else the current one. Exit codes: 0 (all passed); 1 (failures); 2 (misuse, a broken
    policy or test file, or no tests).
    """
    try:
        files = find_tests(paths)
    except NothingToTestError as error:
        usage_error(error)
    report = run_files(files, coverage=coverage, keep_going=keep_going, name=name)
    if not report.files:
        usage_error(f"no test has `{name}` in its name")
    text = RENDER[output_format](report)
    if text or output_format != "github":
        click.echo(text)
    if report.exit_code == _EXIT_FAILURES:
        more = "" if keep_going else "; --keep-going shows the later steps of a test, too"
        suggest_next(f"correct the policy or the expected effect{more}", output_format)
    context.exit(report.exit_code)
