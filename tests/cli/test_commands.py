"""The commands are loaded when they are asked for, and each is there."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from policyguard import cli
from policyguard.__main__ import main as start
from policyguard.cli import _COMMANDS, _MEANT, main
from tests.kept_policies import keep_compiled

FOLDER = Path(cli.__file__).parent


def test_every_command_is_a_file_and_known() -> None:
    context = click.Context(main)
    names = main.list_commands(context)
    for name in names:
        command = main.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert command.help
    files = [*FOLDER.glob("*.py"), *FOLDER.glob("*/__init__.py")]
    written = {file for file in files if "@click." in file.read_text()} - {FOLDER / "__init__.py"}
    assert set(names) == {
        file.parent.name if file.stem == "__init__" else file.stem for file in written
    }
    assert main.get_command(context, "cli") is None


def test_verify_is_a_journal_command_and_its_old_name_still_works() -> None:
    context = click.Context(main)
    journal = main.get_command(context, "journal")
    assert isinstance(journal, click.Group)
    assert "verify" not in main.list_commands(context)
    assert main.get_command(context, "verify") is journal.commands["verify"]


def test_an_interrupt_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("policyguard.cli.lint.lint_paths", interrupt)
    result = CliRunner().invoke(main, ["lint", str(FOLDER)])
    assert (result.exit_code, result.stderr) == (130, "policyguard: interrupted\n")


def test_an_interrupt_while_the_commands_load_has_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Loading:
        def __getattr__(self, name: str) -> None:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "policyguard.cli", Loading())
    with pytest.raises(SystemExit) as ended:
        start()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "policyguard: interrupted\n"


@pytest.mark.parametrize(
    ("expires", "said"),
    [
        ("8h", "no service answers"),
        ("90.5", "no service answers"),
        *(
            (text, f"`{text}` is not a time; write `60s`")
            for text in ("0", "-1", "inf", "nan", "x")
        ),
    ],
)
def test_a_grant_expires_after_a_duration(expires: str, said: str, tmp_path: Path) -> None:
    command = ["approvals", "approve", "c1", "--socket", str(tmp_path / "s"), "--expires", expires]
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize("heavy", ["jsonschema", "policyguard.simulate"])
def test_one_command_does_not_load_what_others_need(heavy: str) -> None:
    code = f"""
import sys
from policyguard.cli import _COMMANDS, _MEANT, main
try:
    main(["explain", "yaml/encoding"])
finally:
    assert {heavy!r} not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_options_of_commands_do_not_load_the_compiler() -> None:
    code = "import sys, policyguard.cli.options; assert 'policyguard.compiler' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_nothing_is_collected_when_a_command_ends() -> None:
    code = """
import atexit, gc
atexit.register(lambda: print("frozen", gc.get_freeze_count() > 0))  # called last
from policyguard.cli import _COMMANDS, _MEANT, main
main(["explain", "yaml/encoding"])
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.endswith("frozen True\n")


@pytest.mark.parametrize("command", ["journal show", "traces convert -o -", "simulate"])
def test_a_reader_that_has_read_enough_ends_a_command_in_silence(
    command: str, tmp_path: Path
) -> None:
    keep_compiled("core")  # under which `simulate` replays
    trace = tmp_path / "trace.jsonl"
    line = '{"event":"admitted","session":"s%d","call":"c","tool":"t","args":{"x":"%s"}}\n'
    trace.write_text("".join(line % (n, "y" * 90) for n in range(2_000)))
    run = subprocess.Popen(
        [sys.executable, "-m", "policyguard", *command.split(), str(trace)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert run.stdout is not None
    run.stdout.close()
    _, errors = run.communicate(timeout=60)
    assert errors == b""
    assert run.returncode == 1


def _leaves(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for one in command.list_commands(context):
        found = command.get_command(context, one)
        assert found is not None
        yield from _leaves(found, f"{name} {one}")


LEAVES = dict(_leaves(main, "policyguard"))


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_has_an_example_that_it_takes(name: str) -> None:
    command = LEAVES[name]
    assert command.epilog is not None
    example = command.epilog.removeprefix("Example: ")
    assert example.startswith(f"{name} ")
    words = shlex.split(example.removeprefix(name).partition(" > ")[0].partition(" < ")[0])
    context = command.make_context(name, words, resilient_parsing=True)
    assert context.args == []
    options = {option for param in command.params for option in param.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_without_arguments_the_first_steps_come_first() -> None:
    result = CliRunner().invoke(main, [], terminal_width=80)
    lines = result.output.splitlines()
    first = lines.index("First steps:")
    assert [line.split()[0] for line in lines[first + 1 : first + 6]] == [
        "init",
        "lint",
        "test",
        "simulate",
        "explain",
    ]
    assert set(main.list_commands(click.Context(main))) == {
        line.split()[0] for line in lines[first + 1 :] if line.startswith("  ")
    }
    assert all(len(line) <= 80 for line in lines)


@pytest.mark.parametrize(
    ("tried", "meant"), [("validate", "lint"), ("diff", "policy diff"), ("simulat", "simulate")]
)
def test_an_unknown_command_names_the_one_that_is_meant(tried: str, meant: str) -> None:
    result = CliRunner().invoke(main, [tried, "x"])
    assert result.exit_code == 2
    assert f"did you mean `{meant}`?" in result.stderr
    assert CliRunner().invoke(main, [*meant.split(), "--help"]).exit_code == 0


def test_every_name_that_people_try_is_no_command_and_leads_to_one() -> None:
    for tried, meant in _MEANT.items():
        assert tried not in _COMMANDS
        assert CliRunner().invoke(main, [*meant.split(), "--help"]).exit_code == 0, tried
