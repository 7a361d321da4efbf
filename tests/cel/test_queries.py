"""`query.sql()` in expressions: typed fields, constant dialects, errors that count."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from policyguard import cel

NAMES: dict[str, Any] = {"query": "string", "any": "dyn"}


def evaluate(expression: str, **values: Any) -> Any:
    return cel.compile(expression, NAMES)(**values)


def test_every_statement_is_listed() -> None:
    verbs = evaluate("query.sql().map(s, s.verb)", query="SELECT 1; DROP TABLE t")
    assert verbs == ["SELECT", "DROP"]
    assert evaluate("query.sql().size()", query=" -- nothing\n") == 0
    assert evaluate("query.sql().all(s, s.verb == 'SELECT')", query="") is True


def test_fields_have_types() -> None:
    condition = "query.sql('mysql').exists(s, s.verb == 'DELETE' && !s.where && 'a.b' in s.tables)"
    assert evaluate(condition, query="DELETE FROM `A`.`B` WHERE 1 = 1") is True
    assert evaluate(condition, query="DELETE FROM `A`.`B` WHERE id = 1") is False
    assert evaluate("query.sql()[0].calls", query="SELECT pg_sleep(1)") == ["pg_sleep"]
    assert evaluate("query.sql()[0].limited", query="SELECT 1 FROM t LIMIT 3") is True
    assert cel.compile("query.sql()", NAMES).type.kind == "list"


@pytest.mark.parametrize("query", ["DELETE FROM", "DO $$ DELETE $$", "SELECT 'a", "x" * 30_000])
def test_what_cannot_be_read_is_an_error(query: str) -> None:
    for _ in range(2):  # answers are kept, errors too
        with pytest.raises(cel.CelEvaluationError) as caught:
            evaluate("query.sql().size() == 0", query=query)
        assert caught.value.kind == "invalid-argument"


@pytest.mark.parametrize("value", [1, None, ["SELECT 1"], {"sql": "SELECT 1"}])
def test_only_texts_are_read(value: Any) -> None:
    with pytest.raises(cel.CelEvaluationError) as caught:
        evaluate("any.sql().size() == 0", any=value)
    assert caught.value.kind == "no-such-overload"


def test_the_library_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    monkeypatch.delitem(sys.modules, "policyguard.sql.parser", raising=False)
    for expression in ("query.sql().size() == 0", "query.sql('postgres').size() == 0"):
        with pytest.raises(cel.CelError) as caught:
            cel.compile(expression, NAMES)
        (problem,) = caught.value.problems
        assert problem.code == "missing-library"
        assert "'policyguard-engine[sql]'" in (problem.help or "")


def test_the_library_is_not_loaded_before_the_first_query() -> None:
    code = (
        "import sys; from policyguard import Guard, cel; Guard.load('core').session('s');"
        "p = cel.compile('q.sql().size()', {'q': 'string'}); assert 'sqlglot' not in sys.modules;"
        "p(q='SELECT 1'); assert 'sqlglot' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
