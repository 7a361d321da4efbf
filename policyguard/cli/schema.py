"""`policyguard schema`: print JSON Schemas."""

from __future__ import annotations

from importlib import resources

import click

SCHEMAS = {
    "policy": "policy.schema.json",
    "policy-tests": "policy-tests.schema.json",
    "event": "event.schema.json",
    "report": "report.schema.json",
    "tools-lock": "tools-lock.schema.json",
}


@click.command(epilog="Example: policyguard schema > policy.schema.json")
@click.argument("name", type=click.Choice(list(SCHEMAS)), default="policy")
def schema(name: str) -> None:
    """Print a JSON Schema, by default that of policies."""
    file = resources.files("policyguard.schemas").joinpath(SCHEMAS[name])
    click.echo(file.read_text("utf-8"), nl=False)
