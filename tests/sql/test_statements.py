"""What statements do, read from data; and that nothing else than `SqlError` is raised."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlglot
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard.sql.errors import SqlError
from policyguard.sql.parser import MAX_CHARS, dialect_names
from policyguard.sql.statements import read_statements
from tests.examples import examples

CASES = yaml.safe_load(
    (Path(__file__).parents[1] / "cases" / "sql" / "statements.yaml").read_text("utf-8")
)
EMPTY = {"tables": [], "where": False, "limited": False, "calls": []}
FRAGMENTS = (
    *" \t\n\r;,.()[]{}'\"`$#@*=<>!\\-+/%|&:?",
    *(
        "--",
        "/*",
        "*/",
        "/*!",
        "$$",
        "$a$",
        "E'",
        "N'",
        "{{",
        "{#",
        "\x00",
        "\u00a0",
        "é",
        "\ud800",
    ),
    *("SELECT ", "FROM ", "WHERE ", "DELETE ", "UPDATE ", "SET ", "INSERT INTO ", "VALUES ", "t "),
    *("WITH a AS (", "UNION ", "LIMIT ", "TOP ", "EXPLAIN ", "ANALYZE ", "CALL ", "EXEC ", "INTO "),
    *(
        "MERGE ",
        "USING ",
        "ON ",
        "WHEN ",
        "THEN ",
        "CASE ",
        "END ",
        "NOT ",
        "1",
        "=",
        "OR ",
        "AND ",
    ),
    *("BEGIN ", "DO ", "COPY ", "TRUNCATE ", "DROP TABLE ", "CREATE ", "ALTER ", "GRANT ", "SHOW "),
)
DIALECTS = st.sampled_from(["", "postgres", "mysql", "tsql", "sqlite", "bigquery", "snowflake"])


def _name(case: dict[str, Any]) -> str:
    return f"{case.get('dialect', '')} {case['sql']}"


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_statements(case: dict[str, Any]) -> None:
    dialect = case.get("dialect", "")
    if "error" in case:
        with pytest.raises(SqlError) as caught:
            read_statements(case["sql"], dialect)
        assert case["error"] in str(caught.value)
    else:
        found = [msgspec.to_builtins(item) for item in read_statements(case["sql"], dialect)]
        assert found == [{**EMPTY, **item} for item in case["statements"]]


@settings(max_examples=examples(300))
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=25).map("".join), DIALECTS)
def test_any_text_is_read_or_an_error(text: str, dialect: str) -> None:
    with contextlib.suppress(SqlError):
        read_statements(text, dialect)


@settings(max_examples=examples(200))
@given(st.data())
def test_a_damaged_statement_is_read_or_an_error(data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(CASES))
    at = data.draw(st.integers(0, len(case["sql"])))
    text = case["sql"][:at] + data.draw(st.sampled_from(FRAGMENTS)) + case["sql"][at:]
    with contextlib.suppress(SqlError):
        read_statements(text, case.get("dialect", ""))


@settings(max_examples=examples(100))
@given(st.data())
def test_a_statement_behind_another_is_always_seen(data: st.DataObject) -> None:
    """Whatever stands before `; DROP TABLE x`, the DROP is seen, or the text is an error.

    Not if the text before it leaves a quote or a comment open: then there is no DROP.
    """
    case = data.draw(st.sampled_from([case for case in CASES if "statements" in case]))
    text = case["sql"].rstrip() + "\n; DROP TABLE victim"
    with contextlib.suppress(SqlError):
        found = read_statements(text, case.get("dialect", ""))
        assert (found[-1].verb, found[-1].tables) == ("DROP", ["victim"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT '" + "a" * MAX_CHARS + "'", "text is too long"),
        ("SELECT " + "(" * 65 + "1" + ")" * 65, "nests too deeply"),
        ("SELECT 1 FROM " + "(SELECT 1 FROM " * 65 + "t" + ") a" * 65, "nests too deeply"),
        ("SELECT " + "NOT " * 3_900 + "1", "nests too deeply"),
        ("SELECT " + "CASE WHEN " * 1_300 + "1" + " THEN 1 END" * 800, ""),
        ("SELECT " + "- " * 3_900 + "1", "nests too deeply"),
        ("SELECT " + ",".join("1" * 2_100), "text has too many words"),
        ("SELECT 1;" * 51, "text has too many statements"),
        ("EXPLAIN " * 3_900 + "SELECT 1", ""),
        ("SELECT * FROM a " + "JOIN b " * 900 + "ON x " * 900, None),
    ],
)
def test_limits(text: str, reason: str | None) -> None:
    """Where `reason` is None, the depth of the caller's stack decides."""
    start = time.process_time()
    try:
        read_statements(text, "postgres")
    except SqlError as error:
        assert (reason or "") in str(error)  # noqa: PT017  # some may be read
    else:
        assert not reason
    assert time.process_time() - start < 5


def test_long_chains_are_read() -> None:
    chain = " AND ".join(f"a{number} = {number}" for number in range(900))
    (statement,) = read_statements(f"DELETE FROM t WHERE {chain}", "")  # noqa: S608  # no database
    assert statement.where
    (statement,) = read_statements("SELECT 1 FROM t" + " UNION SELECT 2 FROM u" * 200, "")
    assert statement.tables == ["t", "u"]


def test_nothing_is_logged_but_by_others(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "sqlglot"):
        with pytest.raises(SqlError):
            read_statements("ALTER TABLE t FOO BAR", "")
        assert caplog.records == []
        sqlglot.parse("ALTER TABLE t FOO BAR")
        assert len(caplog.records) == 1


def test_each_dialect_reads_a_statement() -> None:
    for dialect in dialect_names():
        (statement,) = read_statements("SELECT a FROM t WHERE b = 1", dialect)
        assert (statement.tables, statement.where) == (["t"], True)
    assert "" not in dialect_names()


def test_threads_read_at_the_same_time() -> None:
    texts = [f"DROP TABLE t{number}; DROP TABLE u{number}" for number in range(60)]
    expected = [read_statements(text, "") for text in texts]
    wrong: list[str] = []

    def read_all() -> None:
        pairs = zip(texts, expected, strict=True)
        wrong.extend(text for text, found in pairs if read_statements(text, "") != found)

    threads = [threading.Thread(target=read_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
