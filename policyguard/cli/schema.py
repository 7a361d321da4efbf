"""`policyguard schema`: print JSON Schemas."""

from __future__ import annotations

import json
from importlib import resources

import click

SCHEMAS = {
    "policy": "policy.schema.json",
    "policy-tests": "policy-tests.schema.json",
    "event": "event.schema.json",
    "report": "report.schema.json",
    "tools-lock": "tools-lock.schema.json",
}
SERVICE = "service"


@click.command(epilog="Example: policyguard schema > policy.schema.json")
@click.argument("name", type=click.Choice([*SCHEMAS, SERVICE]), default="policy")
def schema(name: str) -> None:
    """Print a JSON Schema, by default that of policies.

    `service` is the OpenAPI description of the service; what `policyguard check` and `policyguard
    record` read and print is in its components.
    """
    if name == SERVICE:
        from policyguard.adapters.service.openapi import describe_api

        click.echo(json.dumps(describe_api(), indent=2))
        return
    file = resources.files("policyguard.schemas").joinpath(SCHEMAS[name])
    click.echo(file.read_text("utf-8"), nl=False)
