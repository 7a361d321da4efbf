"""The command `policyguard`: one file a command, no logic."""

import click

from policyguard.cli.constraints import constraints
from policyguard.cli.explain import explain
from policyguard.cli.init import init
from policyguard.cli.journal import journal
from policyguard.cli.lint import lint
from policyguard.cli.policy import policy
from policyguard.cli.schema import schema
from policyguard.cli.simulate import simulate
from policyguard.cli.suggest import suggest
from policyguard.cli.test import test
from policyguard.cli.traces import traces
from policyguard.cli.verify import verify_command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="policyguard-engine", prog_name="policyguard")
def main() -> None:
    """Stop loops, repeated failures and runaway budgets before an agent's call runs."""


main.add_command(constraints)
main.add_command(init)
main.add_command(lint)
main.add_command(simulate)
main.add_command(suggest)
main.add_command(test)
main.add_command(explain)
main.add_command(journal)
main.add_command(verify_command)
main.add_command(traces)
main.add_command(policy)
main.add_command(schema)
