"""`policyguard budgets`: list what processes share of budgets, and reset it."""

from __future__ import annotations

import getpass
import time
from collections.abc import Iterator
from pathlib import Path

import click

from policyguard.cli.options import store_option
from policyguard.cli.terminal.status import policy_error, reports_errors, usage_error
from policyguard.compiler import compile_policy
from policyguard.guard.budgets.quota_names import (
    QuotaName,
    guess_spec,
    parse_quota_name,
    quota_spec,
)
from policyguard.model.diagnostic import PolicyError, did_you_mean
from policyguard.report.budgets import SharedUsage, render_usages, show_amount, show_key
from policyguard.report.escape import for_terminal, json_document
from policyguard.store.errors import StoreError
from policyguard.store.opening import open_named_store
from policyguard.store.protocol import BudgetReset, Store
from policyguard.store.quota.protocol import QuotaKey, QuotaSpec


@click.group()
@store_option
def budgets() -> None:
    """List and reset the budgets that sessions and processes share.

    These are budgets per agent, user, project and globally, in a store. Those per session or turn
    end by themselves.
    """


@budgets.command(
    "list", epilog="Example: policyguard budgets list --store state.db --policy policy.yaml"
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="FILE_OR_PACK",
    help="Show the limits of this policy, too. Repeatable.",
)
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text")
@store_option
@click.pass_obj
@reports_errors(StoreError, OSError)
def list_command(store: str | Path, policies: tuple[str, ...], output_format: str) -> None:
    """List the shared budgets: who has used how much of them."""
    specs = _read_specs(policies)
    opened = open_named_store(store, caps=None, read_only=True)
    usages = sorted(_read_usages(opened, specs), key=SharedUsage.sort_key)
    resets = [note for note in opened.anchors.notes() if isinstance(note, BudgetReset)]
    if output_format == "json":
        click.echo(json_document([usage.to_json() for usage in usages]))
    else:
        click.echo(render_usages(usages, resets))


@budgets.command(
    "reset", epilog="Example: policyguard budgets reset spend --key ann --by bob --store state.db"
)
@click.argument("budget")
@click.option("--key", help="The key to reset, as `budgets list` shows it.")
@click.option("--all-keys", is_flag=True, help="Reset all keys of the budget.")
@click.option("--by", default=None, help="The person who resets it.  [default: the current user]")
@store_option
@click.pass_obj
@reports_errors(StoreError, OSError)
def reset_command(
    store: str | Path, budget: str, key: str | None, by: str | None, *, all_keys: bool
) -> None:
    """Set the usage of a shared BUDGET to zero, and take back what it was raised by.

    It holds at once for all processes that use the store, and leaves a note in it. Running calls
    keep their places and reserves.
    """
    known = _read_keys(open_named_store(store, caps=None, read_only=True))  # do not create a store
    chosen = _choose(known, budget, key, all_keys=all_keys)
    opened = open_named_store(store, caps=None)
    for name, quota_key in chosen:
        at = time.time_ns()
        with opened.transaction():
            used = opened.quotas.reset(quota_key, guess_spec(name)).used
            note = BudgetReset(quota_key.budget, quota_key.key, used, by or getpass.getuser(), at)
            opened.anchors.add_note(note)
        whose = f" of {show_key(quota_key.key)}" if quota_key.key else ""
        click.echo(
            f"{for_terminal(name.budget)}{whose} is reset; {show_amount(used)} had been used"
        )


def _read_specs(policies: tuple[str, ...]) -> dict[str, QuotaSpec]:
    """Return the specs of a policy's shared budgets, by the names of their quotas."""
    if not policies:
        return {}
    try:
        compiled = compile_policy(policies)
    except PolicyError as error:
        policy_error(error)
    names = {
        budget: QuotaName(
            compiled.policy.name, budget.id, budget.kind, budget.scope, budget.within is not None
        )
        for budget in compiled.evaluator.budgets.values()
    }
    return {str(name): quota_spec(budget) for budget, name in names.items()}


def _read_keys(store: Store) -> list[tuple[QuotaName, QuotaKey]]:
    """Return the store's quotas with their names."""
    found = [(parse_quota_name(key.budget), key) for key in store.quotas.keys()]  # noqa: SIM118
    return [(name, key) for name, key in found if name is not None]


def _read_usages(store: Store, specs: dict[str, QuotaSpec]) -> Iterator[SharedUsage]:
    now = time.time_ns()
    for name, key in _read_keys(store):
        spec = specs.get(key.budget)
        quota = store.quotas.open(key, spec or guess_spec(name))
        store.quotas.refresh([quota], now if spec is not None else None)
        usage = quota.usage
        yield SharedUsage(
            policy=name.policy,
            budget=name.budget,
            kind=name.kind,
            scope=name.scope,
            key=key.key,
            used=usage.used_at(now, spec.within if spec is not None else None),
            running=usage.running,
            granted=usage.granted,
            limit=spec.limit if spec is not None else None,
            started_at=usage.started_at,
            latest_at=usage.latest_at,
        )


def _choose(
    known: list[tuple[QuotaName, QuotaKey]], budget: str, key: str | None, *, all_keys: bool
) -> list[tuple[QuotaName, QuotaKey]]:
    """Return the quotas that the arguments name."""
    found = [one for one in known if budget in _names_of(one[0])]
    if not found:
        names = sorted({name.budget.removeprefix("budgets/") for name, _ in known})
        hint = did_you_mean(budget, names) or "see `policyguard budgets list`"
        usage_error(f"no shared budget `{budget}` in this store ({hint})")
    if len({name for name, _ in found}) > 1:
        names = sorted({f"{name.policy}/{name.budget}" for name, _ in found})
        if len(names) > 1:
            usage_error(f"several policies have it; name one of {', '.join(names)}")
    if any(name.kind == "concurrent" for name, _ in found):
        usage_error(f"`{budget}` counts running calls: it is free again when they end")
    if key is not None and not all_keys:
        keys = {show_key(quota.key): quota.key for _, quota in found}
        if key not in keys:
            hint = did_you_mean(key, sorted(keys)) or "see `policyguard budgets list`"
            usage_error(f"`{budget}` has no key `{key}` ({hint})")
        return [one for one in found if one[1].key == keys[key]]
    if len(found) > 1 and not all_keys:
        usage_error(f"`{budget}` has {len(found)} keys: pass --key KEY or --all-keys")
    return found


def _names_of(name: QuotaName) -> tuple[str, ...]:
    return name.budget, name.budget.removeprefix("budgets/"), f"{name.policy}/{name.budget}"
