"""Compiled programs: calls, parameters, reads, generated code; custom functions."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from policyguard import cel
from policyguard.cel import BOOL, DYN, INT, STANDARD, STRING, Declarations, Function, record
from tests.cel.sample_declarations import SAMPLE_DECLARATIONS

CALL = {"tool": "bash", "class": "search", "args": {"n": 1}, "typed": {}, "urls": [], "parts": []}


def test_calling_it() -> None:
    program = cel.compile(
        "call.tool == 'bash' && now > timestamp(0)", SAMPLE_DECLARATIONS, expect=BOOL
    )
    assert program.type == BOOL
    assert program(call=CALL, now=cel.Timestamp(1), session="is not read") is True
    assert program.function(CALL, cel.Timestamp(0)) is False
    with pytest.raises(TypeError, match="missing argument `now`"):
        program(call=CALL)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": None}, "`source` must be a string, not `NoneType`"),
        ({"source": b"x"}, "`source` must be a string, not `bytes`"),
        ({"declarations": None}, "`declarations` must be a mapping of names to types, not `None"),
        ({"declarations": ["x"]}, "`declarations` must be a mapping of names to types, not `list`"),
        ({"declarations": {"x": 5}}, "`declarations: x` must be a type name, not `int`"),
        ({"declarations": {"x": {"y": None}}}, "`declarations: y` must be a type name, not `None"),
        ({"expect": "int"}, "`expect` must be a `Type` such as `cel.BOOL`, not `str`"),
    ],
)
def test_an_argument_of_the_wrong_type_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        cel.compile(**{"source": "x == 1", "declarations": {"x": "int"}, **arguments})


def test_parameters_are_the_variables_it_reads_in_declaration_order() -> None:
    assert cel.compile("now > now && call.tool == 'bash'", SAMPLE_DECLARATIONS).parameters == (
        "call",
        "now",
    )
    assert cel.compile("true", SAMPLE_DECLARATIONS).parameters == ()
    assert cel.compile("true", SAMPLE_DECLARATIONS).function() is True


WITH_ACTIVATION = cel.Declarations(
    {"call": cel.record({"tool": cel.STRING, "args": cel.DYN}, name="call"), "now": cel.TIMESTAMP},
    attributes={"call": "whole", "call.args": "parts.args", "now": "now"},
)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("call.args.limit == 3", True),
        ("call['args']['limit'] == 3", True),
        ("has(call.args.limit) && !has(call.args.other)", True),
        ("call.tool == 'bash'", True),
        ("call == {'tool': 'bash', 'args': 'of the whole'}", True),
        ("call.args.other == 1 || now > now || call.args.limit == 3", True),
        ("[{'args': 1}].all(call, call.args == 1)", True),
        ("{'args': 1}.args == 1", True),
    ],
)
def test_an_activation_may_hold_all_variables(source: str, expected: bool) -> None:
    program = cel.compile(source, WITH_ACTIVATION)
    activation = SimpleNamespace(
        whole={"tool": "bash", "args": "of the whole"},
        parts=SimpleNamespace(args={"limit": 3}),
        now=cel.Timestamp(0),
    )
    assert program.parameters == ("activation",)
    assert program.function(activation) is expected
    assert program.reads == cel.compile(source, WITH_ACTIVATION.variables).reads


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"call": "call"}, "no attribute for the variable `now`"),
        ({"call": "call", "now": "now()"}, r"`now\(\)` is not an attribute path"),
        ({"call": "a.class", "now": "now"}, r"`a.class` is not an attribute path"),
    ],
)
def test_every_variable_needs_a_valid_attribute(attributes: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cel.Declarations(WITH_ACTIVATION.variables, attributes=attributes)


def test_only_needed_attributes_of_the_activation_are_read() -> None:
    program = cel.compile("call.args == 1 && now == now", WITH_ACTIVATION)
    assert program.function(SimpleNamespace(parts=SimpleNamespace(args=2))) is False
    with pytest.raises(cel.CelEvaluationError):
        program.function(SimpleNamespace(parts=SimpleNamespace(args=1)))


@pytest.mark.parametrize(
    ("source", "reads"),
    [
        ("call.args.limit > session.calls", {"call.args.limit", "session.calls"}),
        ("now > now", {"now"}),
        ("call == call", {"call"}),
        ("call.args == call.args.a", {"call.args", "call.args.a"}),
        ("has(call.cwd)", {"call.cwd"}),
        ("call['tool'] == 'bash'", {"call.tool"}),
        ("call.args['content-type'] == 1", {"call.args"}),
        ("call.args[call.tool] == 1", {"call.args", "call.tool"}),
        ("call.urls.all(u, u == call.tool)", {"call.urls", "call.tool"}),
        ("call.parts.all(p, p.name == 'x')", {"call.parts"}),
        ("call.parts.all(call, call.name == 'x')", {"call.parts"}),
        ("session.count('bash') > 1", {"session"}),
        ("[call.args.a, call.urls][0] == 1", {"call.args.a", "call.urls"}),
        ("1 == 1", set()),
    ],
)
def test_reads(source: str, reads: set[str]) -> None:
    assert cel.compile(source, SAMPLE_DECLARATIONS).reads == reads


def test_the_generated_code_is_readable() -> None:
    program = cel.compile(
        "call.tool == 'bash' &&\n  call.urls.exists(u, u.host() in ['x.org'])", SAMPLE_DECLARATIONS
    )
    assert (
        program.code
        == """\
def evaluate(call):
    # call.tool == 'bash' &&
    # call.urls.exists(u, u.host() in ['x.org'])
    iterations = 10000
    meter = ReadMeter()
    try:
        holds = call['tool'] == 'bash'
        if holds:
            # call.urls.exists(u, u.host() in ['x.org'])
            urls = call['urls']
            if urls.__class__ is not list:
                urls = elements(urls)
            iterations -= len(urls)
            if iterations < 0:
                raise too_many_iterations()
            found = False
            for u in urls:
                if meter.call(host, u) in names:
                    found = True
                    break
            holds = found
        return holds
    except ERRORS:
        pass
    return evaluate_absorbing(call)


def evaluate_absorbing(call):
    # call.tool == 'bash' &&
    # call.urls.exists(u, u.host() in ['x.org'])
    iterations = 10000
    meter = ReadMeter()
    try:
        # call.tool == 'bash' && call.urls.exists(u, u.host() in ['x.org'])
        holds = True
        failure = None
        try:
            holds = call['tool'] == 'bash'
        except ERRORS as error:
            failure = describe_error(error)
        if holds:
            try:
                # call.urls.exists(u, u.host() in ['x.org'])
                urls = call['urls']
                if urls.__class__ is not list:
                    urls = elements(urls)
                iterations -= len(urls)
                if iterations < 0:
                    raise too_many_iterations()
                found = False
                failure_2 = None
                for u in urls:
                    try:
                        found = meter.call(host, u) in names
                    except ERRORS as error:
                        failure_2 = describe_error(error)
                    if found:
                        break
                if failure_2 is not None and not found:
                    raise absorbed_error(failure_2)
                holds = found
            except ERRORS as error:
                failure = describe_error(error)
        if not holds:
            failure = None
        if failure is not None:
            raise absorbed_error(failure)
        return holds
    except ERRORS as error:
        raise absorbed_error(describe_error(error)) from None
"""
    )


@pytest.mark.parametrize(
    "source",
    [
        "x == 'a\\n\\rb' // end",
        "x == 'a' // \\\n || true",
        "x\n//\r import os\n == 'a'",
        "x == '''\n\nimport os\n'''",
        "x == 'a' //\x0c\x0bimport os",
        "x == '\\u2028\\u0085' //\u2028 \u0085 import os",
        "x.all(e,\n//\rimport os\n e == '\\r')",
        "x == r'\\' || x == '\\'' || x == \"'''\" ",
        "x.`a/b` == 1",
    ],
)
def test_the_source_never_becomes_code(source: str) -> None:
    program = cel.compile(source, Declarations({"x": DYN}))
    module = ast.parse(program.code)
    assert all(isinstance(node, ast.FunctionDef) for node in module.body)
    names = {node.id for node in ast.walk(module) if isinstance(node, ast.Name)}
    assert not names & {"os", "import"}
    assert not any(isinstance(node, ast.Import) for node in ast.walk(module))
    assert set(program.function.__globals__["__builtins__"]) == set()


@pytest.mark.parametrize(
    "name",
    [
        "class",
        "lambda",
        "None",
        "len",
        "evaluate",
        "iterations",
        "error",
        "ERRORS",
        "holds",
        "_",
        "__x__",
    ],
)
def test_names_with_a_meaning_in_python(name: str) -> None:
    declarations = Declarations({name: DYN, f"{name}_": DYN, "a.b": DYN})
    program = cel.compile(f"{name} == 1 && {name}_ == 2 && a.b == 3", declarations)
    assert program(**{name: 1, f"{name}_": 2, "a.b": 3}) is True
    loop = cel.compile(f"[1, 2].map({name}, {name} + 1).exists({name}, {name} == 3)", declarations)
    assert loop() is True


class Lazy(Mapping[str, Any]):
    """A record that is not a dict: it records the fields that are read."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        self.read: list[str] = []

    def __getitem__(self, key: str) -> Any:
        self.read.append(key)
        return self.fields[key]

    def __contains__(self, key: object) -> bool:
        return key in self.fields

    def __iter__(self) -> Iterator[str]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)


def test_a_record_may_be_any_mapping() -> None:
    source = "call.tool == 'bash' && has(call.cwd) && call['cwd'] == '/'"
    program = cel.compile(source, SAMPLE_DECLARATIONS)
    assert program(call=MappingProxyType({"tool": "bash", "cwd": "/"})) is True
    lazy = Lazy(tool="bash")
    assert program(call=lazy) is False
    assert lazy.read == ["tool"]


def test_tuples_are_lists() -> None:
    program = cel.compile(
        "x + ['c'] == ['a', 'b', 'c'] && 'a' in x && x[1] == 'b'", Declarations({"x": DYN})
    )
    assert program(x=("a", "b")) is True


class TestFunctions:
    def test_a_method_of_a_record(self) -> None:
        program = cel.compile("session.count('bash') > 2", SAMPLE_DECLARATIONS)
        assert program(session={"counts": {"bash": 3}}) is True
        with pytest.raises(cel.CelEvaluationError) as caught:
            program(session={"counts": {}})
        assert caught.value.kind == "no-such-key"

    def test_arguments_are_checked_before_the_call(self) -> None:
        got: list[Any] = []
        shout = Function("shout", None, (STRING, INT), STRING, lambda *a: got.append(a) or "!")
        declarations = Declarations({"x": DYN}, functions=(*STANDARD, shout))
        program = cel.compile("shout(x.name, x.n)", declarations)
        assert program(x={"name": "a", "n": 1}) == "!"
        for wrong in ({"name": 1, "n": 1}, {"name": "a", "n": True}, {"name": "a", "n": 1.0}):
            with pytest.raises(cel.CelEvaluationError) as caught:
                program(x=wrong)
            assert caught.value.kind == "no-such-overload"
        loop = cel.compile("x.map(e, shout(e, 1))", declarations)
        with pytest.raises(cel.CelEvaluationError):
            loop(x=["a", 2])
        assert got == [("a", 1), ("a", 1)]

    def test_overloads_are_selected_by_argument_types(self) -> None:
        functions = [
            Function("kind", None, (STRING,), STRING, lambda _: "text"),
            Function("kind", None, (INT,), STRING, lambda _: "number"),
            Function("kind", None, (cel.list_of(DYN),), STRING, lambda _: "list"),
        ]
        declarations = Declarations({"x": DYN}, functions=functions)
        program = cel.compile("kind(x)", declarations)
        assert [program(x=x) for x in ("a", 1, [], ())] == ["text", "number", "list", "list"]
        assert cel.compile("kind('a')", declarations)() == "text"
        with pytest.raises(cel.CelEvaluationError) as caught:
            program(x=True)
        assert caught.value.kind == "no-such-overload"

    @pytest.mark.parametrize("source", ["size(x)", "[x].map(e, size(e))[0]"])
    def test_an_overload_of_a_standard_function(self, source: str) -> None:
        """`size` is written inline where there is none."""
        own = Function("size", None, (INT,), INT, lambda number: number * 10)
        declarations = Declarations({"x": DYN}, functions=(own, *STANDARD))
        program = cel.compile(source, declarations)
        assert [program(x=x) for x in (4, "ab", [1])] == [40, 2, 1]
        with pytest.raises(cel.CelEvaluationError) as caught:
            program(x=True)
        assert caught.value.kind == "no-such-overload"

    def test_a_record_is_accepted_where_any_map_is(self) -> None:
        count = Function("count", None, (cel.map_of(STRING, DYN),), INT, len)
        declarations = Declarations({"x": record({"a": INT}, name="x")}, functions=[count])
        assert cel.compile("count(x)", declarations)(x={"a": 1}) == 1

    def test_a_literal_argument_is_checked_and_prepared_once(self) -> None:
        prepared: list[str] = []

        def prepare(text: str) -> list[str]:
            prepared.append(text)
            if not text:
                raise ValueError("an empty list of words")
            return text.split()

        among = Function(
            "among",
            STRING,
            (STRING,),
            BOOL,
            lambda word, words: word in words,
            prepare_literal=prepare,
        )
        declarations = Declarations({"x": STRING}, functions=[among])
        program = cel.compile("x.among('a b')", declarations)
        assert [program(x=x) for x in ("a", "b", "c")] == [True, True, False]
        assert prepared == ["a b"]
        for source, code in (("x.among('')", "bad-argument"), ("x.among(x)", "not-constant")):
            with pytest.raises(cel.CelError) as caught:
                cel.compile(source, declarations)
            (problem,) = caught.value.problems
            assert (problem.code, problem.column) == (code, 9)

    def test_a_literal_without_prepared_form_is_passed(self) -> None:
        echo = Function(
            "echo", None, (STRING,), STRING, lambda text: text, prepare_literal=lambda _: None
        )
        declarations = Declarations({}, functions=[echo])
        assert cel.compile("echo('a')", declarations)() == "a"

    def test_value_errors_are_absorbed_and_others_propagate(self) -> None:
        def fail(kind: str) -> bool:
            raise {"value": ValueError("bad"), "other": RuntimeError("broken")}[kind]

        declarations = Declarations(
            {"x": STRING}, functions=[Function("fail", None, (STRING,), BOOL, fail)]
        )
        program = cel.compile("fail(x) || true", declarations)
        assert program(x="value") is True
        with pytest.raises(RuntimeError, match="broken"):
            program(x="other")
        with pytest.raises(cel.CelEvaluationError, match="bad"):
            cel.compile("fail(x)", declarations)(x="value")

    def test_standard_functions_are_optional(self) -> None:
        with pytest.raises(cel.CelError):
            cel.compile("size('a')", Declarations({}, functions=()))


def test_expect() -> None:
    declarations = Declarations({"x": DYN})
    assert cel.compile("x", declarations, expect=STRING).type == DYN
    with pytest.raises(cel.CelError) as caught:
        cel.compile("1 + 1", declarations, expect=STRING)
    assert [problem.code for problem in caught.value.problems] == ["wrong-type"]


def test_without_checking_undeclared_names_fail_at_run_time() -> None:
    declarations = Declarations({"x": INT})
    assert cel.compile("nothing || true", declarations, check=False)() is True
    assert cel.compile("f(1) || true", declarations, check=False)() is True
    with pytest.raises(cel.CelEvaluationError) as caught:
        cel.compile("nothing", declarations, check=False)()
    assert caught.value.kind == "undeclared-reference"
    with pytest.raises(cel.CelEvaluationError) as caught:  # the macro's variable ends with it
        cel.compile("[1].exists(e, e == 1) && e == 1", declarations, check=False)()
    assert caught.value.kind == "undeclared-reference"
    assert cel.compile("x == 'a'", declarations, check=False)(x=1) is False


@pytest.mark.parametrize("source", ["1.5 + x", "x + 1.5", "1.5 * x", "x - 1.5"])
def test_numbers_of_unknown_types_are_not_mixed(source: str) -> None:
    program = cel.compile(source, Declarations({"x": DYN}))
    assert isinstance(program(x=2.5), float)
    with pytest.raises(cel.CelEvaluationError) as caught:
        program(x=2)
    assert caught.value.kind == "no-such-overload"


@pytest.mark.parametrize("source", ["'a'.x", "[1].x", "(1.5).x", "null.x"])
def test_without_checking_fields_of_literals_fail_at_run_time(source: str) -> None:
    program = cel.compile(source, Declarations({}), check=False)  # Python would warn of a subscript
    with pytest.raises(cel.CelEvaluationError) as caught:
        program()
    assert caught.value.kind == "no-such-overload"


def test_names_in_a_container() -> None:
    variables = {"a.b.x": INT, "a.x": INT, "x": INT, "a.b": record({"y": INT}, name="a.b")}
    declarations = Declarations(variables, container="a.b")
    values = {"a.b.x": 1, "a.x": 2, "x": 3, "a.b": {"y": 4}}
    assert cel.compile("x", declarations)(**values) == 1
    assert cel.compile(".x", declarations)(**values) == 3
    assert cel.compile("a.x", declarations)(**values) == 2
    assert cel.compile("a.b.y", declarations)(**values) == 4


def test_warnings_do_not_prevent_compilation() -> None:
    program = cel.compile("call.cwd == '/'", SAMPLE_DECLARATIONS)
    assert [problem.severity for problem in program.warnings] == ["warning"]
    assert program(call={**CALL, "cwd": "/"}) is True


def test_programs_and_problems_are_immutable() -> None:
    program = cel.compile("call.cwd == '/'", SAMPLE_DECLARATIONS)
    for thing, field in (
        (program, "source"),
        (program.warnings[0], "line"),
        (SAMPLE_DECLARATIONS, "container"),
    ):
        with pytest.raises(AttributeError):
            setattr(thing, field, "x")
    assert repr(program) == "Program(\"call.cwd == '/'\")"


def test_errors_can_be_pickled() -> None:
    error = copy.copy(cel.CelEvaluationError("overflow", "too large"))
    assert (error.kind, str(error)) == ("overflow", "too large")


def test_errors_leave_no_cycles() -> None:
    """An exception kept in a variable would keep its own frame alive."""
    import gc

    program = cel.compile("x.a && x.b", Declarations({"x": DYN}))
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            with pytest.raises(cel.CelEvaluationError):
                program(x={})
        assert gc.collect() == 0
    finally:
        gc.enable()
