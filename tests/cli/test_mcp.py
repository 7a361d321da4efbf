"""`policyguard mcp`: what it says of wrong options."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from policyguard.cli import main


@pytest.mark.parametrize(
    ("upstreams", "text"),
    [
        (["web"], "is not NAME=URL"),
        (["a__b=http://localhost:1/mcp"], "is not NAME=URL"),
        (["web=ftp://x"], "not the http address"),
        (["web=http://"], "not the http address"),
        (["web=http://x/mcp", "web=http://y/mcp"], "two servers are called `web`"),
    ],
)
def test_upstreams_that_cannot_be_served(upstreams: list[str], text: str) -> None:
    options = [part for one in upstreams for part in ("--upstream", one)]
    result = CliRunner().invoke(main, ["mcp", "serve", "--policy", "core", *options])
    assert result.exit_code == 2
    assert text in result.output


def test_a_proxy_listens_on_loopback_only() -> None:
    options = ["--policy", "core", "--host", "192.0.2.1", "--upstream", "a=http://x/mcp"]
    result = CliRunner().invoke(main, ["mcp", "serve", *options])
    assert result.exit_code == 2
    assert "loopback" in result.output


def test_a_policy_that_is_broken(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("policyguard: 1\nname: p\nrulez: {}\n")
    result = CliRunner().invoke(main, ["mcp", "--policy", str(policy), "--", "sleep", "100"])
    assert result.exit_code == 2
    assert "rulez" in result.output


def test_options_without_a_server_say_where_its_command_goes() -> None:
    result = CliRunner().invoke(main, ["mcp", "--policy", "core"])
    assert result.exit_code == 2
    assert "no command of a server: write it behind `--`" in result.output


def test_help_names_the_options_before_a_command() -> None:
    assert "--server" in CliRunner().invoke(main, ["mcp", "run", "--help"]).output
    assert "mcp run --help" in CliRunner().invoke(main, ["mcp", "--help"]).output
