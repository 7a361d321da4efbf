"""The command `policyguard`: one file a command, no logic."""

import click

from policyguard.cli.explain import explain
from policyguard.cli.lint import lint
from policyguard.cli.simulate import simulate


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="policyguard-engine", prog_name="policyguard")
def main() -> None:
    """Stop loops, repeated failures and runaway budgets before an agent's call runs."""


main.add_command(lint)
main.add_command(simulate)
main.add_command(explain)
