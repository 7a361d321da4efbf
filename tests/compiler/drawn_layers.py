"""Draws policies of two layers whose entries select calls in all ways, and calls for them."""

from __future__ import annotations

from typing import Any

from tests.evaluator.drawn_policies import Entry, Pick, draw_policy

SELECTORS: tuple[Entry, ...] = (
    {"tools": ["bash"], "commands": ["git push --force|-f", "rm -r"]},
    {"commands": {"outside": ["ls", "git *", "cat"]}},
    {"tools": ["bash"], "commands": ["$programs"]},
    {"paths": ["/srv/**", "*.md"]},
    {"paths": {"outside": [".", "/var"]}},
    {"paths": ["~/.ssh", "C:/Windows", "**/.env"]},
    {"paths": {"outside": ["$folders"]}, "tools": ["bash", "edit", "write"]},
    {"hosts": ["*.x.org", "10.0.0.1"]},
    {"hosts": {"outside": ["x.org", "$sites"]}},
    {"finds": ["password"]},
    {"finds": ["secret_*", "password"], "tools": ["send", "bash"]},
    {"finds": ["secret_b"], "hosts": ["x.org"]},
    {"classes": ["edit", "del*"]},
    {"classes": {"outside": ["look"]}},
    {"servers": ["git*"], "tools": ["push"]},
    {"tools": ["$writers"], "agents": ["a"]},
    {"tools": {"outside": ["$writers", "bash"]}},
    {"tools": ["r*", "*d"], "classes": ["look"]},
    {"tools": ["*"]},
)
CONDITIONS = (
    "call.command.runs('git push')",
    "call.command.only_runs(['ls', 'git status'])",
    "call.command.only_runs(lists.programs)",
    "call.command.read_only()",
    "call.command.opaque()",
    "call.command.paths('rm -r').exists(p, p.inside('/srv'))",
    "call.text.finds('secret_*')",
    "call.paths.exists(p, p.like('/srv/**/*.py'))",
    "call.paths.all(p, p.inside(session.cwd))",
    "call.urls.exists(u, u.host_in(lists.sites))",
    "call.urls.exists(u, !u.private())",
    "call.strings.exists(s, s.startsWith('pw-'))",
    "call.class == 'edit'",
    "'look' in call.classes",
    "call.server == 'github'",
    "call.tool.startsWith('r')",
    "call.tool == 'read'",
    "call.tool in ['read', 'send']",
    "has(call.args.path) && call.args.path.matches('^/srv')",
    "has(call.args.n) && call.args.n > params.most",
    "call.args.n > params.most",
    "call.hints.read_only",
    "has(call.hints.read_only) && call.hints.read_only",
    "session.count('read') > 1",
    "session.count_class('look') > 1",
    "session.elapsed > duration('20s')",
    "now.during('Mon-Fri 09:00-17:00 UTC')",
    "tags.tier == 'vip' && !params.dry",
    "call.targets.exists(t, t.endsWith('.py'))",
    "call.previous.path == call.args.path",
    "call.args.path in lists.folders",
    "'team' in tags.groups || session.roles.exists(r, r == 'lead')",
    "size(call.args) > 1",
)
MESSAGES: tuple[Entry, ...] = (
    {"message": "no {call.args.path} of {call.args.to.path} ({tags.tier})"},
    {"message": "{call.tool} {call.class} {tags.tier} {{x}}"},
    {"message": "{call.args.n} {call.args.missing} {call.args.command}"},
    {"message": "stop", "instead": "use {call.tool} otherwise"},
    {},
    {},
)
EFFECTS = ("block", "block", "block", "ask", "advise", "halt")
CLASSES: tuple[Entry, ...] = (
    {"class": "shell", "tools": ["bash", "$writers"]},
    {"class": "delete", "commands": ["rm", "git clean"]},
    {"class": "delete", "words": ["delete", "remove"]},
    {"class": "look", "words": ["read", "get", "list"], "leading": True},
    {"class": "look", "when": "call.command.read_only()"},
    {"class": "net", "when": "call.urls.size() > 0", "tools": ["fetch", "bash"]},
    {"class": "edit", "tools": ["write"], "when": "!call.args.path.startsWith('/tmp')"},
)
SECTIONS: dict[str, tuple[Any, ...]] = {
    "outcomes": (
        {"failed_when": "outcome.exit_code != 0"},
        {"failed_when": "outcome.text.contains('lost') || outcome.status >= 400"},
        {"wrappers": ["Tool failed: (.*)"], "envelope": [{"state": "failure", "pattern": "^down"}]},
        {"meta": {"non_advancing": ["stuck"], "harness": ["infra"]}},
    ),
    "journal": (
        {"args": "mask", "results": "keep"},
        {"args": "keep", "redact": ["password"]},
        {"args": "drop", "redact": ["secret_*"], "durability": "fsync"},
    ),
    "mode": ("observe", "enforce"),
    "batch": ("all_or_none", "each"),
    "on_internal_error": ("allow", "block"),
    "bounds": ({"result_chars": 40}, {"argument_depth": 3}, {"argument_bytes": 60}, {"plans": 2}),
}
LIKENESS: tuple[Entry, ...] = (
    {"fold": ["path", "command"]},
    {"results": {"mask": ["durations", "counters"], "order": "ignored"}},
    {"results": {"nothing": ["no match", "^$"]}},
    {"results": {"mask": ["times"]}, "fold": ["text"]},
)
PROGRAMS: Entry = {
    "git": {
        "values": ["-C", "-c"],
        "read_only": ["status", "log", "show"],
        "changes": ["--output"],
        "same": [["-f", "--force"]],
        "folder": ["-C"],
    },
    "ls": {"read_only": True, "values": ["-I"]},
    "cat": {"read_only": True, "reads": "operands"},
    "grep": {"read_only": True, "reads": "operands"},
    "rm": {"reads": "none", "same": [["-r", "-R", "--recursive"]]},
    "curl": {"reads": "none", "writes": ["-o"], "values": ["-o"]},
}
SHELL: tuple[Entry, ...] = (
    {"arguments": ["command"], "programs": PROGRAMS},
    {"arguments": ["command", "to.run"], "programs": PROGRAMS},
    {"arguments": ["command"], "words": ["args"], "lists": ["paths"]},
    {"first_line_tools": ["edit"], "programs": {"ls": {"read_only": True}}},
    {"wrappers": {"sudo": {"values": ["-u"]}}, "arguments": ["command", "text"]},
)
TOOLS_JSON = """\
{"tools": [
  {"name": "read", "inputSchema": {"type": "object", "properties": {
    "path": {"type": "string"}, "n": {"type": "integer"},
    "paths": {"type": "array", "items": {"type": "string"}},
    "to": {"type": "object", "properties": {"name": {"enum": ["a", "b"]},
    "size": {"type": "number"}}}},
    "required": ["path"]}},
  {"name": "bash", "inputSchema": {"type": "object", "properties": {
    "command": {"type": ["string", "null"]},
    "n": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}},
  {"name": "send", "inputSchema": {"type": "object", "additionalProperties": false}},
  {"name": "edit"}, {"name": "write"}, {"name": "poll"}, {"name": "push"}, {"name": "deploy"},
  {"name": "test"}, {"name": "fetch"}, {"name": "get_it"}, {"name": "x"}, {"name": "delete_file"}
]}
"""
TOOLS = (
    *("read", "edit", "write", "bash", "bash", "bash", "send", "fetch", "poll", "push"),
    *("delete_file", "get_it", "mcp__github__push", "readFile", "x"),
)
COMMANDS = (
    *("git push --force origin", "git push -f", "git status && ls", "rm -rf /srv/a", "rm x.py"),
    *("cat /etc/passwd | grep x", "ls", "echo hi > a.txt", "find . -delete", "eval $X", "cd /srv"),
    *(
        "curl https://a.x.org/f -o f",
        "bash -c 'rm -r /tmp/a'",
        "mytool list",
        "  ",
        "#",
        "-x",
        "a b",
    ),
    *('["git", "push", "-f"]', '{"run": "rm -r b"}', "git\nrm -r c", "echo pw-123", "'", "git \\"),
)
PATHS = (
    *(
        "a",
        "/srv/a.py",
        "../x",
        "/var/../srv/b.py",
        "~/.ssh/id",
        "docs/a.md",
        ".env",
        "C:\\Windows\\x",
    ),
    *(
        "/srv",
        "/srv/",
        "//srv//a",
        "./a",
        "",
        "file:///srv/a.py",
        "%2e%2e/x",
        "a\\b.md",
        "$HOME/a",
        "*",
    ),
)
URLS = (
    *("https://x.org/a", "https://a.x.org", "http://10.0.0.1:80/", "x.org", "https://user@x.org"),
    *(
        "http://localhost/",
        "HTTPS://A.X.ORG.",
        "http://[::1]/",
        "https://y.org:444/?q=x",
        "ftp://z",
    ),
)
TEXTS = (
    "pw-123",
    "the secret AKIA1234 is",
    "b-99",
    "done",
    "x" * 50,
    "see https://x.org/b now",
    "",
)
OTHERS = (0, 1, 3, 7, -2, 1.5, True, None, [], {}, ["a", 1, None], {"a": {"path": "/srv/c.py"}})


def draw_layers(pick: Pick) -> tuple[Entry, Entry]:
    """Return a policy, and one that extends it; some are invalid."""
    base, top = _draw_layer(pick), _draw_layer(pick)
    base["params"] = {
        "most": pick({"default": 2, "env": "MOST", "min": 0, "max": 9}, 2, 3),
        "wait": "20s",
        "dry": pick(True, False),
    }
    base["lists"] = {
        "writers": ["write", "edit", "$more"],
        "more": ["send"],
        "programs": ["ls", "git status"],
        "folders": ["/srv", "docs"],
        "sites": ["*.x.org", "y.org"],
    }
    base["patterns"] = {
        "password": {"match": "pw-[0-9]+", "examples": {"match": ["pw-1"], "no_match": ["p"]}},
        "secret_a": {"match": "AKIA([0-9]{4})", "examples": {"match": ["AKIA0000"]}},
        "secret_b": {"match": "b-9+", "examples": {"match": ["b-9"]}},
    }
    base["tags"] |= {"groups": {"type": "list(string)", "default": ["team"]}}
    base |= pick({}, {}, {}, {"schemas": "tools.json"})
    if pick(True, False, False):
        for rule in base["rules"].values():
            rule["locked"] = True
        top["rules"] = {f"{name}x": rule for name, rule in top["rules"].items()}
    if pick(True, False):
        del top["tags"]
    base["marks"] = {"noted": {"set": {"tools": ["read"]}}, **base.get("marks", {})}
    top["extends"] = ["base.yaml"]
    top |= pick({}, {"lists": {"writers": {"add": ["deploy"], "remove": ["write"]}}})
    top |= pick({}, {"lists": {"sites": ["z.org"], "folders": {"add": ["/opt"]}}})
    top |= pick({}, {"params": {"most": 3}})
    top |= pick(
        {}, {"patterns": {"secret_b": {"match": "b-[0-9]", "examples": {"match": ["b-1"]}}}}
    )
    top |= pick({}, {"disable": {pick("rules/s0", "s0", "classes/edit"): "not needed"}})
    return base, top


def _draw_layer(pick: Pick) -> Entry:
    drawn = draw_policy(pick) if pick(True, False, False, False) else _draw_small(pick)
    drawn["classify"]["classes"] += [pick(*CLASSES) for _ in range(pick(1, 2))]
    drawn["classify"]["paths"] = pick(["path", "paths"], ["path", "to.path"])
    drawn["classify"]["urls"] = pick(["url"], ["url", "to.url"])
    drawn["classify"] |= pick({}, {"folder": ["cwd"]}, {"patches": ["patch"]})
    drawn["classify"]["shell"] = pick(*SHELL)
    drawn["classify"] |= pick({}, {}, {"likeness": pick(*LIKENESS)})
    rules = {f"s{number}": _draw_rule(pick) for number in range(pick(1, 2, 3))}
    drawn["rules"] = {**drawn.get("rules", {}), **rules}
    for section in pick((), (pick(*SECTIONS),), (pick(*SECTIONS),)):
        drawn[section] = pick(*SECTIONS[section])
    if pick(True, False, False):
        limits: Entry = {"repeat": {"max": pick(1, 2, "$most")}}
        level = pick("tools", "classes")
        name = pick("bash", "r*", "@spawn") if level == "tools" else pick("edit", "look")
        drawn["limits"][level] = {name: pick(limits, limits | {"failures": "none"})}
    if pick(True, False, False):
        budget = {"calls": pick(2, "$most"), **pick(*SELECTORS)}
        drawn["budgets"] = {"some": budget | pick({}, {"per": ["session", "tags.tier"]})}
    if pick(True, False, False):
        drawn["result_rules"] = {
            "t0": {"finds": [pick("password", "secret_*")], "effect": pick("redact", "withhold")}
        }
    return drawn


def _draw_small(pick: Pick) -> Entry:
    return {
        "policyguard": 1,
        "name": "small",
        "tags": {"tier": pick({"one_of": ["free", "vip"], "default": "free"}, {"default": "free"})},
        "classify": {
            "classes": [{"class": "edit", "tools": ["edit"]}, {"class": "look", "tools": ["read"]}],
            "targets": pick(["path"], ["path", "url", "to.path"]),
        },
        "limits": {"default": {}},
    }


def _draw_rule(pick: Pick) -> Entry:
    drawn = dict(pick(*SELECTORS))
    drawn |= pick({}, {}, {pick("when", "unless"): pick(*CONDITIONS)})
    if pick(True, False, False, False):
        cases = [dict(pick(*SELECTORS)) for _ in range(pick(1, 2))]
        drawn["cases"] = [case | {"effect": pick("allow", *EFFECTS)} for case in cases]
        return drawn | pick({}, {"otherwise": pick("allow", "block")})
    drawn["effect"] = pick(*EFFECTS)
    drawn |= pick({}, {}, {"on_error": pick("allow", "ask", "block")}, {"mode": "observe"})
    return drawn | pick(*MESSAGES)


def draw_call(pick: Pick) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return a tool, its arguments, and what else is known of the call."""
    tool = pick(*TOOLS)
    args: dict[str, Any] = {}
    for _ in range(pick(1, 1, 2, 3)):
        name = pick("path", "path", "command", "url", "n", "text", "paths", "to", "args", "patch")
        if tool == "bash" and pick(True, False):
            name = "command"
        args[name] = _draw_value(pick, name)
    more = pick(
        {}, {}, {}, {"server": "github"}, {"hints": {pick("read_only", "open_world"): True}}
    )
    return tool, args, more


def _draw_value(pick: Pick, name: str) -> Any:
    if pick(True, *[False] * 9):
        return pick(*OTHERS)
    patch = f"--- a/{pick(*PATHS)}\n+++ b/{pick(*PATHS)}\n@@ -1 +1 @@\n-a\n+b\n"
    texts = {"path": PATHS, "command": COMMANDS, "url": URLS, "n": (0, 1, 3, 5), "text": TEXTS}
    if name in texts:
        text = pick(*texts[name])
        return pick(text, text, text, text, text, [text, pick(*texts[name])])
    return {
        "paths": [pick(*PATHS), pick(*PATHS)],
        "to": {pick("path", "url", "run"): pick(*PATHS, *URLS)},
        "args": [pick("-rf", "x", "push"), pick("-f", 1)],
        "patch": patch,
    }[name]
