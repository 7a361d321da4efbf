"""`mcp install` sends servers' entries through the proxy, `mcp uninstall` puts them back."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client, StdioServerParameters

from policyguard.adapters.installation import jsonc
from policyguard.adapters.installation.mcp.clients import MCP_CLIENTS
from policyguard.cli import main
from tests.adapters.mcp.processes import PROBE_SERVER
from tests.examples import examples

JSON = """\
{
  "theme": "dark",
  "mcpServers": {
    "files": {
      "type": "stdio",
      "command": "npx",
      "args": [ "-y",  "server-files", "/data" ],
      "env": {"TOKEN": "s3cret"}
    },
    "bare": {"command": "bare-server"},
    "web": {"type": "http", "url": "https://example.org/mcp", "headers": {"X": "1"}},
    "old": {"type": "sse", "url": "https://example.org/sse"}
  }
}
"""
JSONC = """\
// my servers
{
\t"inputs": [], /* none */
\t"servers": {
\t\t"files": {
\t\t\t"command": "npx", // node
\t\t\t"args": ["-y", "server-files", "// no comment"],
\t\t},
\t\t"web": {"url": "https://example.org/mcp"},
\t},
}
"""
TOML = """\
model = "o4"  # the best

[mcp_servers.files]
command = "npx"   # node
args = [
  "-y",
  "server-files",  # the server
]
env = { TOKEN = "s3cret" }

[mcp_servers.web]
url = "https://example.org/mcp"
bearer_token_env_var = "TOKEN"

[tools]
web_search = true
"""
TEXTS = {
    "claude-desktop": JSON,
    "claude-code": JSON,
    "cursor": JSON,
    "vscode": JSONC,
    "codex": TOML,
    "gemini-cli": JSON.replace('"type": "http", "url"', '"httpUrl"'),
}
all_clients = pytest.mark.parametrize("client", [*MCP_CLIENTS])


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def run(*arguments: object, text: str | None = None) -> Result:
    return CliRunner().invoke(main, ["mcp", *map(str, arguments)], input=text)


def install(client: str, file: Path, *options: str, text: str | None = "") -> Result:
    return run("install", client, "--policy", "core", "--settings", file, *options, text=text)


def uninstall(client: str, file: Path, *options: str) -> Result:
    return run("uninstall", client, "--settings", file, "--yes", *options)


def entries(client: str, file: Path) -> dict[str, Any]:
    text = file.read_text()
    document = tomllib.loads(text) if client == "codex" else jsonc.parse(text)
    return {path[-1]: entry for path, entry in MCP_CLIENTS[client].find_entries(document)}


@all_clients
def test_entries_go_through_the_proxy_and_back(client: str, tmp_path: Path) -> None:
    file = tmp_path / "settings"
    file.write_text(TEXTS[client])
    file.chmod(0o640)
    before = entries(client, file)
    result = install(client, file, "--yes")
    assert result.exit_code == 0, result.output
    after = entries(client, file)
    command, args = after["files"]["command"], after["files"]["args"]
    assert Path(command).is_absolute()
    ours, theirs = args[: args.index("--")], args[args.index("--") + 1 :]
    assert ours[ours.index("--policy") + 1] == "core"
    assert ours[ours.index("--server") + 1] == "files"
    assert theirs == ["npx", *before["files"]["args"]]
    (key,) = {"url", "httpUrl"} & after["web"].keys()
    assert after["web"][key] == "http://127.0.0.1:8978/web"
    assert "--upstream=web=https://example.org/mcp" in result.output
    assert "old: it speaks SSE" in result.output or client in ("vscode", "codex")
    for name, entry in after.items():
        rest = entry.keys() - {"command", "args", "url", "httpUrl"}
        assert {one: entry[one] for one in rest} == {one: before[name][one] for one in rest}
    assert file.stat().st_mode & 0o777 == 0o640
    assert uninstall(client, file).exit_code == 0
    assert file.read_text() == TEXTS[client]
    assert not (tmp_path / "state" / "policyguard" / "mcp-clients.json").exists()


@all_clients
def test_installing_again_changes_nothing(client: str, tmp_path: Path) -> None:
    file = tmp_path / "settings"
    file.write_text(TEXTS[client])
    install(client, file, "--yes")
    once = file.read_text()
    again = install(client, file)
    assert again.exit_code == 0
    assert "is as it should be" in again.output
    assert file.read_text() == once
    other = install(client, file, "--policy", "packs/strict", "--yes")
    assert other.exit_code == 0
    assert "strict" in file.read_text()
    uninstall(client, file)
    assert file.read_text() == TEXTS[client]


@all_clients
def test_the_change_is_shown_and_asked_about(client: str, tmp_path: Path) -> None:
    file = tmp_path / "settings"
    file.write_text(TEXTS[client])
    asked = install(client, file, text="n\n")
    assert asked.exit_code == 1
    assert "+++" in asked.output
    assert "policyguard" in asked.output
    assert "s3cret" not in asked.output
    assert file.read_text() == TEXTS[client]


def test_only_named_servers_are_sent_through(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(JSON)
    assert install("cursor", file, "--server", "bare", "--yes").exit_code == 0
    after = entries("cursor", file)
    assert after["bare"]["args"][-2:] == ["--", "bare-server"]
    assert {name: after[name] for name in ("files", "web")} == {
        name: json.loads(JSON)["mcpServers"][name] for name in ("files", "web")
    }
    assert install("cursor", file, "--server", "files", "--yes").exit_code == 0
    assert uninstall("cursor", file, "--server", "bare").exit_code == 0
    assert "--" in entries("cursor", file)["files"]["args"]
    assert uninstall("cursor", file).exit_code == 0
    assert file.read_text() == JSON


def test_an_unknown_server_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(JSON)
    result = install("cursor", file, "--server", "nope", "--yes")
    assert result.exit_code == 2
    assert "no server `nope`; they have bare, files, old, web" in result.output


def test_the_written_command_runs_the_server_under_the_policy(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    own = {"command": sys.executable, "args": [PROBE_SERVER], "env": {"A": "b"}}
    file.write_text(json.dumps({"mcpServers": {"probe": own}}))
    policy = tmp_path / "policy.yaml"
    policy.write_text("policyguard: 1\nname: p\nrules: {no: {tools: [mcp__probe__echo]}}\n")
    assert run("install", "cursor", "--policy", policy, "--settings", file, "--yes").exit_code == 0

    async def story() -> None:
        entry = entries("cursor", file)["probe"]
        server = StdioServerParameters(command=entry["command"], args=entry["args"], cwd=tmp_path)
        async with Client(server, mode="legacy") as client:
            assert not (await client.call_tool("add", {"a": 1, "b": 2})).is_error
            assert (await client.call_tool("echo", {"text": "a"})).is_error

    anyio.run(story)


def test_servers_of_projects_are_found_in_claude_code(tmp_path: Path) -> None:
    servers = {"mcpServers": {"files": {"command": "a", "args": []}}}
    file = tmp_path / ".claude.json"
    text = json.dumps({**servers, "projects": {"/w": servers, "/x": {}}, "numStartups": 3})
    file.write_text(text)
    assert install("claude-code", file, "--yes").exit_code == 0
    found = json.loads(file.read_text())
    assert "--" in found["mcpServers"]["files"]["args"]
    assert "--" in found["projects"]["/w"]["mcpServers"]["files"]["args"]
    uninstall("claude-code", file)
    assert file.read_text() == text


def test_an_edited_entry_is_put_back_in_meaning(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(JSON)
    install("cursor", file, "--yes")
    file.write_text(json.dumps(json.loads(file.read_text())))  # another program wrote it anew
    assert uninstall("cursor", file).exit_code == 0
    after, before = entries("cursor", file), json.loads(JSON)["mcpServers"]
    assert after == {**before, "bare": {**before["bare"], "args": []}}


def test_a_link_stays_one_and_line_breaks_stay(tmp_path: Path) -> None:
    target, file = tmp_path / "target.json", tmp_path / "settings.json"
    text = JSON.replace("\n", "\r\n")
    target.write_bytes(text.encode())
    file.symlink_to(target)
    install("cursor", file, "--yes")
    assert file.is_symlink()
    assert target.read_bytes().count(b"\r\n") == target.read_bytes().count(b"\n")
    uninstall("cursor", file)
    assert target.read_bytes() == text.encode()


def test_what_was_there_is_recorded_privately(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(JSON)
    install("cursor", file, "--yes")
    record = tmp_path / "state" / "policyguard" / "mcp-clients.json"
    assert record.stat().st_mode & 0o777 == 0o600
    assert "s3cret" not in record.read_text()  # of other lines nothing is kept


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"mcpServers": 3}', '{"mcpServers": {"a": 3}}', "{}", '{"a": "\\'],
)
def test_broken_settings_are_an_error(text: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(text)
    for result in (install("cursor", file, "--yes"), uninstall("cursor", file)):
        assert result.exit_code == 2, result.output
        assert isinstance(result.exception, SystemExit)
    assert file.read_text() == text


_names = st.text(max_size=4)
_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=8,
)
_blanks = st.sampled_from([" ", "\n", "// }\n", '/* " */', "\t/*]*/ "])


def _write(value: Any, draw: Any) -> str:
    """Return a value as JSON with comments and trailing commas where they may stand."""
    blank = lambda: draw(_blanks)  # noqa: E731 - short
    if isinstance(value, dict):
        items = [
            f"{json.dumps(key)}{blank()}:{blank()}{_write(one, draw)}" for key, one in value.items()
        ]
    elif isinstance(value, list):
        items = [_write(one, draw) for one in value]
    else:
        return json.dumps(value)
    comma = draw(st.sampled_from(["", ","])) if items else ""
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}{blank()}{f'{blank()},'.join(items)}{blank()}{comma}{blank()}{closing}"


@settings(max_examples=examples(100), deadline=None)
@given(st.data(), st.dictionaries(_names, _values, max_size=3), _values)
def test_json_with_comments_is_changed_in_place(
    data: st.DataObject, entry: dict[str, Any], value: Any
) -> None:
    entry = {"command": "a", **entry}
    text = _write({"x": [{"s": 1}], "s": {"n": entry, "m": {}}}, data.draw)
    assert jsonc.parse(text) == {"x": [{"s": 1}], "s": {"n": entry, "m": {}}}
    changed = jsonc.set_members(text, ("s", "n"), {"command": value, "args": ["b"]})
    expected = {**entry, "command": value, "args": ["b"]}
    assert jsonc.parse(changed) == {"x": [{"s": 1}], "s": {"n": expected, "m": {}}}
    assert changed.count("/*") == text.count("/*")
