"""What a text runs, and what of it cannot be seen."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard.shell.command_line import MARKS, SimpleCommand
from policyguard.shell.reader import ShellReader
from tests.shell.shell_cases import CORPORA, read_case, shell_facts, shell_reader

FRAGMENTS = (
    *"abr -/.~*?[]{}()<>|&;#!=$'\"`\\\n\t ",
    *("rm", "-r", "$(", "${", "$((", "<<E", "\nE\n", "<<<", "&&", "||", ";;", "case x in ", "esac"),
    *("if ", "then ", "fi", "for x in ", "do ", "done", "f() {", "sh -c '", "eval ", "x=", "${x:-"),
    *("[[ ", " ]]", "\x00", "\x01", "\x04", "\u2028", "\ud800", "é", "\ue000", "$'\\x", "{a,b}"),
)
TEXTS = st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join)


def _show(command: SimpleCommand) -> str:
    return re.sub(f"[{MARKS}]+", "?", " ".join((command.path, *command.arguments)).rstrip())


def _chain(length: int, call: str) -> str:
    """Return functions of which each calls the next; `{}` stands for its number."""
    return "".join(f"f{n}() {{ {call.format(n + 1)}; }}\n" for n in range(length))


@pytest.mark.parametrize("case", read_case("readings"), ids=lambda case: case["text"])
def test_reading(case: dict[str, Any]) -> None:
    line = shell_reader().read(case["text"])
    if "runs" in case:
        assert [_show(command) for command in line.commands] == case["runs"]
    assert list(line.opaque) == case.get("opaque", [])


@given(TEXTS)
def test_reading_never_fails(text: str) -> None:
    shell_reader().read(text)


@given(st.data())
def test_a_damaged_command_is_read(data: st.DataObject) -> None:
    corpus = read_case(data.draw(st.sampled_from(CORPORA)))
    text = data.draw(st.sampled_from(corpus["blocked"]))
    at = data.draw(st.integers(0, len(text)))
    shell_reader().read(text[:at] + data.draw(st.sampled_from(FRAGMENTS)) + text[at:])


def test_what_bash_accepts_is_no_syntax_error() -> None:
    """Of the texts of the corpora, the grammar refuses hardly one that bash accepts."""
    texts = [
        text
        for name in CORPORA
        for kind in ("blocked", "allowed")
        for text in read_case(name)[kind]
    ]
    reader = shell_reader()
    refused = [text for text in texts if "syntax error" in reader.read(text).opaque]
    valid = [
        text
        for text in refused
        if subprocess.run(["bash", "-n", "-c", text], capture_output=True, check=False).returncode
        == 0
    ]
    assert len(valid) <= len(texts) / 100, valid


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo " + "a" * 20_000, "text is too long"),
        ("( " * 60 + "ls" + " )" * 60, "nesting is too deep"),
        ("$(" * 60 + "ls" + ")" * 60, "nesting is too deep"),
        ("sudo " * 60 + "ls", "nesting is too deep"),
        ("ls;" * 500, "too many commands"),
        ("ls " + "{a,b}" * 20, None),
        ("ls " + "{a," * 3000 + "}" * 3000, None),
        ("ls " + "{" * 9000, None),
        ("ls " + "a " * 3000, "too many words"),
        ("ls " + "$x " * 3000, "too many words"),
        ("for a in 1 2 3; do " * 12 + "ls;" + " done;" * 12, None),
        (" | ".join(["{ ls; ls; ls; ls; }"] * 24) + " | xargs rm", None),
        (" | ".join(["{ ls; ls; ls; ls; }"] * 24) + " | sh", None),
        ("eval " * 100 + "ls", "nesting is too deep"),
        ("echo " + "${x:-" * 12 + "}" * 12, ""),
        ("echo " + "${x:-" * 60 + "}" * 60, "nesting is too deep"),
        ("echo " + "${x:-" * 900 + "}" * 900, "nesting is too deep"),
        ("echo $((" + "(" * 900 + "1" + ")" * 900 + "))", None),
        (_chain(8, 'f{} "$1$1$1$1$1$1$1$1"') + "f0 aaaaaaaa", "words are too long"),
        (_chain(8, 'f{} "$*$*$*$*$*$*$*$*"') + "f0 a b", "words are too long"),
        (_chain(20, "a=$(f{0})$(f{0})") + "f0", "nesting is too deep"),
        ("f() { " + "[[ a ]];" * 2000 + " }; " + "f;" * 300, "too many statements"),
        ("f() { " + '[[ "$x$y" ]];' * 1400 + " }; " + "f;" * 300, "too many statements"),
        ("f() { eval '# " + "a" * 18_000 + "'; }; " + "f;" * 300, "texts are too long"),
        ("f() { cat <<E\n" + "a" * 18_000 + "$x\nE\n}\n" + "f;" * 300, "texts are too long"),
        ("f(){ [[ a ]];};" * 1300 + "f;" * 200, "too many statements"),
        ('f() { "$Y" a "$@"; }; f; "$Z" b', None),
        ("A=" + "a" * 18_000 + "; $A", None),
    ],
)
def test_limits(text: str, reason: str | None) -> None:
    start = time.process_time()
    line = shell_reader().read(text)
    assert time.process_time() - start < 2
    assert len(line.commands) <= shell_facts().bounds.commands + 1
    if reason == "":
        assert not line.opaque
    elif reason is not None:
        assert reason in line.opaque
        assert line.commands[-1].program in MARKS


@pytest.mark.parametrize(
    "text",
    [
        "powershell -Command 'rm x'",
        "POWERSHELL.EXE -enc AAAA",
        "echo ls | pwsh -",
        "cmd /s /c 'del x'",
        "CMD /c dir",
        r"C:\Windows\System32\cmd.exe /c del x",
        "%COMSPEC% /c del x",
        "Get-ChildItem | Remove-Item -Recurse",
        "remove-item -recurse x",
        "del /f /s x",
    ],
)
def test_commands_of_other_shells_cannot_be_seen(text: str) -> None:
    line = shell_reader().read(text)
    assert "commands of another shell" in line.opaque
    assert line.commands[-1].program in MARKS


@pytest.mark.parametrize("text", ['0"\x80', 'ls "é', "ls 'é", 'a="é', "ls $'é", 'bash -c "ls é'])
def test_a_string_without_its_end_is_a_syntax_error(text: str) -> None:
    assert "syntax error" in shell_reader().read(text).opaque


def test_a_subcommand_is_found_in_no_time() -> None:
    start = time.process_time()
    ShellReader(shell_facts()).read("docker" + " --x compose" * 1_300)
    assert time.process_time() - start < 0.3


def test_the_name_of_a_group_may_be_a_value_before_it() -> None:
    line = shell_reader().read("docker --context compose --x compose exec c ls")
    assert line.commands[-1].program == "ls"


def test_the_parser_is_halted() -> None:
    bounds = msgspec.structs.replace(shell_facts().bounds, milliseconds=20)
    reader = ShellReader(msgspec.structs.replace(shell_facts(), bounds=bounds))
    assert "parser ran out of time" in reader.read("a|" * 9_000).opaque
    assert reader.read("ls").opaque == ()


def test_readings_are_kept_up_to_a_number() -> None:
    bounds = msgspec.structs.replace(shell_facts().bounds, texts=2)
    reader = ShellReader(msgspec.structs.replace(shell_facts(), bounds=bounds))
    first = reader.read("ls")
    assert reader.read("ls") is first
    reader.read("pwd")
    reader.read("id")
    assert reader.read("ls") is not first
    assert reader.read("ls") == first


def test_threads_share_a_reader() -> None:
    reader = ShellReader(shell_facts())
    texts = [f"cd x{n} && rm -r a{n} | tee b{n}" for n in range(100)]
    texts += [f'f() {{ "$@"; }}; f a{n} | f sh; "$Y" {n}' for n in range(100)]
    expected = [shell_reader().read(text) for text in texts]
    wrong: list[str] = []

    def read_all() -> None:
        wrong.extend(t for t, line in zip(texts, expected, strict=True) if reader.read(t) != line)

    threads = [threading.Thread(target=read_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
