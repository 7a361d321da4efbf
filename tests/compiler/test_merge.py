"""Merging of layers, and the sources of merged values."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard.compiler.pipeline import FrontendResult
from policyguard.engines.yaml_tree import to_plain
from policyguard.model.diagnostic import Diagnostic
from tests.compiler.setup import read_files


@pytest.fixture
def merged(tmp_path, monkeypatch):
    """Merge layers, the base first, each given without its head."""
    monkeypatch.chdir(tmp_path)

    def merge(*layers: str) -> FrontendResult:
        for number, text in enumerate(layers):
            extends = f"extends: [layer{number - 1}.yaml]\n" if number else ""
            head = f"policyguard: 1\nname: layer{number}\n{extends}"
            Path(f"layer{number}.yaml").write_text(head + text)
        return read_files(f"layer{len(layers) - 1}.yaml")

    return merge


def errors(result: FrontendResult) -> list[tuple[str, str]]:
    return [(found.code, source(found)) for found in result.diagnostics]


def source(found: Diagnostic) -> str:
    """Return the text under the caret."""
    return found.lines[0][found.span.column - 1 : found.span.end_column - 1]


def test_policy_without_extends_inherits_nothing(merged):
    policy = merged("").policy
    assert (policy.rules, policy.signatures, policy.limits) == ((), (), {})
    assert policy.classify.classes == ()


def test_given_scalars_are_replaced(merged):
    policy = merged(
        "mode: observe\nowner: a\ndescription: one\non_internal_error: allow", "owner: b"
    ).policy
    assert (policy.name, policy.mode, policy.owner) == ("layer1", "observe", "b")
    assert (policy.description, policy.on_internal_error) == ("one", "allow")


def test_entry_with_the_same_id_is_replaced_as_a_whole(merged):
    policy = merged(
        "rules: {a: {tools: [x], effect: halt, message: stop}, b: {tools: [y]}}",
        "rules: {c: {tools: [z]}, a: {tools: [w]}}",
    ).policy
    assert [rule.id for rule in policy.rules] == ["a", "b", "c"]
    (first, *_) = policy.rules
    assert (first.tools.items, first.effect, first.message) == (("w",), "block", None)


def test_ban_and_key_replace_each_other(merged):
    learn = merged("learn: {key: call.tool, scope: agent}", "learn: {ban: tool}").policy.learn
    assert (learn.key, learn.ban, learn.scope) == (None, "tool", "agent")
    learn = merged("learn: {ban: target}", "learn: {key: call.tool}").policy.learn
    assert (learn.key, learn.ban) == ("call.tool", "call")
    learn = merged("learn: {key: call.tool}", "learn: {scope: session}").policy.learn
    assert learn.key == "call.tool"
    base = "classify: {targets: [p]}\nlearn: {ban: target, except: [r]}"
    for upper, spared in (
        ("ban: call", None),
        ("key: call.tool", None),
        ("ban: target", ("r",)),
        ("except: [w], ban: target", ("w",)),
    ):
        learn = merged(base, f"learn: {{{upper}}}").policy.learn
        assert learn.except_ == spared


def test_first_match_list_replaces_known_ids_in_place(merged):
    policy = merged(
        "signatures: [{id: a, pattern: a}, {id: b, pattern: b, blame: agent}]",
        "signatures: [{id: x, pattern: x}, {id: b, pattern: b2}, {id: y, pattern: y}]",
    ).policy
    found = [(signature.id, signature.pattern) for signature in policy.signatures]
    assert found == [("x", "x"), ("y", "y"), ("a", "a"), ("b", "b2")]
    assert policy.signatures[3].blame == "unknown"


def test_new_classes_come_first(merged):
    policy = merged(
        "classify: {classes: [{class: a, tools: [x]}, {class: b, tools: [y]}]}",
        "classify: {classes: [{class: b, tools: [z]}, {class: b, words: [w]}]}",
    ).policy
    found = [(entry.class_, entry.tools) for entry in policy.classify.classes]
    assert found == [("b", ("z",)), ("b", None), ("a", ("x",)), ("b", ("y",))]


def test_sections_are_merged_key_by_key_and_plain_lists_replaced(merged):
    policy = merged(
        "classify: {targets: [a, b], shell: {arguments: [sh]}, fingerprint:"
        " {ignore: [i], fold: [f], tolerance: {x: 0.1, y: 0.1}}}\nbounds: {sessions: 5}",
        "classify: {targets: [c], fingerprint: {ignore: [j], tolerance: {y: 0.2}}}\n"
        "bounds: {plans: 7}",
    ).policy
    classify = policy.classify
    assert (classify.targets, classify.shell.arguments) == (("c",), ("sh",))
    assert (classify.fingerprint.ignore, classify.fingerprint.fold) == (("j",), ("f",))
    assert classify.fingerprint.tolerance == {"x": 0.1, "y": 0.2}
    assert (policy.bounds.sessions, policy.bounds.plans) == (5, 7)


def test_shell_lists_are_added_to(merged):
    base = "classify: {shell: {arguments: [command, sh]}}"
    added = merged(base, "classify: {shell: {arguments: [code, sh]}}")
    assert added.policy.classify.shell.arguments == ("command", "sh", "code")
    replaced = merged(base, "classify: {shell: {replace: true, arguments: [code]}}")
    assert replaced.policy.classify.shell.arguments == ("code",)
    again = merged(base, "classify: {shell: {replace: false, arguments: [code]}}")
    assert again.policy.classify.shell.arguments == ("command", "sh", "code")
    assert [*added.diagnostics, *replaced.diagnostics, *again.diagnostics] == []


@pytest.mark.parametrize("own", ["300", "{default: 300}", "{default: 300, env: MOST}"])
def test_params_keep_inherited_bounds(merged, own):
    base = "params: {most: {default: 5, min: 2, max: 10}}\nbudgets: {b: {calls: $most}}"
    result = merged(base, f"params: {{most: {own}}}")
    assert errors(result) == [("scalar/param", "300")]
    fine = merged(base, f"params: {{most: {own.replace('300', '7')}}}").policy
    assert (fine.params["most"].value, fine.params["most"].min, fine.params["most"].max) == (
        7,
        2,
        10,
    )
    own_bounds = merged(base, "params: {most: {default: 300, max: 500}}").policy
    assert (own_bounds.params["most"].min, own_bounds.params["most"].max) == (2, 500)


def test_limits_are_replaced_by_level_and_kind(merged):
    policy = merged(
        "limits: {default: {repeat: {max: 3, window: 5}, cycle: {max: 2}},"
        " tools: {a*: {repeat: {max: 9}, cycle: {max: 9}}}}",
        "limits: {default: {repeat: {max: 4}}, tools: {a*: {repeat: none}, b: {cycle: {max: 1}}}}",
    ).policy
    default, some, other = (policy.limits[key] for key in ("default", "tools:a*", "tools:b"))
    assert (default.repeat.max, default.repeat.window, default.cycle.max) == (4, 10, 2)
    assert (some.repeat, some.cycle.max) == ("none", 9)
    assert (other.repeat, other.cycle.max) == (None, 1)


def test_only_one_section_has_a_switch_named_replace(merged):
    """Elsewhere it is a name, such as that of a tool."""
    base = "limits: {tools: {edit: {repeat: {max: 3}}}}"
    limits = merged(base, "limits: {tools: {replace: {repeat: {max: 9}}}}").policy.limits
    assert limits["tools:edit"].repeat.max == 3
    assert limits["tools:replace"].repeat.max == 9


def test_named_lists_are_replaced_or_changed(merged):
    policy = merged(
        "lists: {a: [x, y], b: [x, y], c: [1, 2]}",
        "lists: {a: [z], b: {add: [z, y], remove: [x]}, c: {remove: [1]}}",
    ).policy
    assert policy.lists == {"a": ("z",), "b": ("y", "z"), "c": (2,)}


def test_list_edits_need_an_inherited_list(merged):
    result = merged("lists: {known: [true]}", "lists: {new: {add: [x]}, known: {remove: [1]}}")
    assert errors(result) == [("reference/unknown-list", "new"), ("reference/not-in-list", "1")]


def test_disable_removes_inherited_entries(merged):
    result = merged(
        """
rules: {a: {tools: [x]}, b: {tools: [x]}}
budgets: {a: {calls: 1}, c: {calls: 1}}
signatures: [{id: s, pattern: x}, {id: t, pattern: y}]
classify: {classes: [{class: k, tools: [x]}, {class: l, tools: [y]}, {class: k, words: [y]}]}
limits:
  default: {repeat: {max: 3}, cycle: {max: 3}}
  classes: {k: {repeat: {max: 2}}}
  tools: {a_*: {repeat: {max: 2}, cycle: {max: 2}}, b: {repeat: {max: 1}}}
""",
        """
disable:
  rules/a: this one
  c: a trailing part is enough
  signatures/s: gone
  classes/k: all entries of the class
  limits/classes:k: the whole level
  default/repeat: a kind
  limits/tools:a_*/cycle: a kind of a tool
""",
    )
    policy = result.policy
    assert errors(result) == []
    assert [rule.id for rule in policy.rules] == ["b"]
    assert [budget.id for budget in policy.budgets] == ["a"]
    assert [signature.id for signature in policy.signatures] == ["t"]
    assert [entry.class_ for entry in policy.classify.classes] == ["l"]
    assert sorted(policy.limits) == ["default", "tools:a_*", "tools:b"]
    assert policy.limits["default"].repeat is None
    assert policy.limits["default"].cycle.max == 3
    assert policy.limits["tools:a_*"].cycle is None


def test_entry_can_be_disabled_and_redefined(merged):
    result = merged(
        "signatures: [{id: a, pattern: x}, {id: b, pattern: x}]",
        "disable: {signatures/b: goes first now}\nsignatures: [{id: b, pattern: y}]",
    )
    assert [(one.id, one.pattern) for one in result.policy.signatures] == [("b", "y"), ("a", "x")]


def test_layer_cannot_disable_its_own_entries(merged):
    result = merged("", "rules: {a: {tools: [x]}}\ndisable: {rules/a: why}")
    assert errors(result) == [("reference/unknown-id", "rules/a")]


def test_ambiguous_id_is_an_error(merged):
    result = merged("rules: {a: {tools: [x]}}\nbudgets: {a: {calls: 1}}", "disable: {a: why}")
    assert errors(result) == [("reference/ambiguous-id", "a")]


def test_broken_inherited_entry_can_be_disabled(merged):
    result = merged("rules: {a: {effect: ask}}", "disable: {rules/a: why}")
    assert errors(result) == [("schema/missing-key", "a")]


def test_disable_is_not_inherited(merged):
    result = merged(
        "rules: {a: {tools: [x]}}", "disable: {rules/a: why}", "rules: {a: {tools: [y]}}"
    )
    assert [rule.id for rule in result.policy.rules] == ["a"]


def test_duplicate_id_is_an_error(merged):
    result = merged(
        "signatures: [{id: a, pattern: x}]",
        "signatures: [{id: a, pattern: y}, {id: a, pattern: z}, {id: b, pattern: z}]",
    )
    assert errors(result) == [("reference/duplicate-id", "a")]
    assert result.diagnostics[0].span.file == "layer1.yaml"


def test_values_keep_their_source(merged):
    merged = merged(
        "rules: {a: {when: call.tool == 'x'}, b: {tools: [x]}}\nlists: {l: [p, q]}\n"
        "signatures: [{id: s, pattern: x}]",
        "rules: {c: {tools: [$l]}}\nsignatures: [{id: n, pattern: y}]\nlists: {l: {add: [r]}}",
    ).merged
    origin = merged.origin
    assert origin(("rules", "a", "when")) == "layer0.yaml"
    assert origin(("rules", "c")) == "layer1.yaml"
    assert [origin(("signatures", n, "pattern")) for n in (0, 1)] == ["layer1.yaml", "layer0.yaml"]
    assert [origin(("lists", "l", n)) for n in (0, 1, 2)] == [
        "layer0.yaml",
        "layer0.yaml",
        "layer1.yaml",
    ]
    # Inserted items keep the source of their list.
    assert origin(("rules", "c", "tools", 0)) == "layer0.yaml"
    span = merged.span_within(("rules", "a", "when"), 1, 6, 1, 10)
    assert merged.lines(span)[0][span.column - 1 : span.end_column - 1] == "tool"
    key = merged.span_of(("rules", "c"), key=True)
    assert merged.lines(key)[0][key.column - 1 : key.end_column - 1] == "c"
    # A default has the span of its parent.
    assert merged.span_of(("rules", "b", "effect")) == merged.span_of(("rules", "b"))
    assert not merged.has(("rules", "b", "effect"))
    assert to_plain(merged.node(("lists", "l"))) == ["p", "q", "r"]


def test_broken_entries_are_known_and_hide_no_errors(merged):
    result = merged(
        "rules: {a: {tools: [x], effect: stop}, b: {effct: ask}}\nlists: {l: 5}\n"
        "signatures: [{id: s, pattern: [x]}]\nclassify: {classes: [{class: k}]}",
        "rules: {c: {classes: [k], tools: [$l]}}\n"
        "limits: {default: {failures: {max: 1, signature: s}}}",
    )
    assert {code for code, _ in errors(result)} == {
        "schema/value",
        "schema/unknown-key",
        "schema/missing-key",
        "schema/type",
    }
    assert {("rules", "a"), ("rules", "b"), ("lists", "l")} <= result.merged.broken_entries
    assert result.merged.broken_names("classes") == {"k"}
    assert result.merged.broken_names("signatures") == {"s"}
    # The rest can be checked further.
    assert [rule.id for rule in result.policy.rules] == ["a", "c"]


def test_digest_differs_between_policies(merged, tmp_path):
    digests = {
        merged(*layers).policy.digest
        for layers in (
            ("owner: a",),
            ("owner: b",),
            ("owner: a", ""),
            ("", "owner: a"),
            ("owner: a # why",),
        )
    }
    assert len(digests) == 5
    text = "params: {calls: {default: 3, env: CALLS}}"
    merged(text)
    values = [{}, {"CALLS": "4"}, {"CALLS": "5"}, {"OTHER": "5"}]
    found = [read_files("layer0.yaml", environ=environ).policy.digest for environ in values]
    assert found[0] == found[3]
    assert len(set(found)) == 3
