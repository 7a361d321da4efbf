"""Where the commands of a text run, after `cd`: as bash runs them, and no wider than need be."""

from __future__ import annotations

import os
import posixpath
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard.shell.command_line import ANY, MANY, MARKS, NAME
from policyguard.shell.reader import ShellReader
from policyguard.shell.touched import find_paths_of, normalize
from tests.examples import examples
from tests.shell.shell_cases import shell_facts

BASH = shutil.which("bash")


def find_places(text: str) -> dict[str, set[str]]:
    """Return the folders in which `mark 1`, `mark 2` and so on may run."""
    places: dict[str, set[str]] = {}
    for command in ShellReader(shell_facts()).read(text).commands:
        if command.program == "mark" and command.arguments:
            places.setdefault(command.arguments[0], set()).update(command.folders)
    return places


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("mark 1", {""}),
        ("cd /a && mark 1", {"/a"}),
        ("cd /a; mark 1", {"", "/a"}),
        ("set -e; for d in /a /b; do cd $d; break; done; mark 1", {"/a", "/b", ""}),
        ("set -e; cd /a; cd /b; while x; do cd -; mark 1; cd /c; cd /b; done", {"/a", "/c"}),
        ("cd /a\nmark 1", {"", "/a"}),
        ("cd /a || mark 1", {""}),
        ("cd /a || exit; mark 1", {"/a"}),
        ("cd /a || exit 1\nmark 1", {"/a"}),
        ("cd /a 2>/dev/null || exit $?\nmark 1", {"/a"}),
        ("cd /a || { echo no; exit 1; }; mark 1", {"/a"}),
        ("cd /a || exit 1 2; mark 1", {"", "/a"}),
        ("exit() { :; }; cd /a || exit; mark 1", {"", "/a"}),
        ("enable -n exit; cd /a || exit; mark 1", {"", "/a"}),
        ("(cd /a || exit); mark 1", {""}),
        ("cd /a || exit | cat; mark 1", {"", "/a"}),
        ("cd /a || return; mark 1", {"", "/a"}),
        ("f() { cd /a || return; mark 1; }; f; mark 2", {"/a"}),
        ("set -e; cd /a; mark 1", {"/a"}),
        ("set -euo pipefail\ncd /a\ncd b\nmark 1", {"/a/b"}),
        ("set -o errexit; cd /a; mark 1", {"/a"}),
        ("set -e; cd /a && ls; mark 1", {"", "/a"}),
        ("set -e; ! cd /a; mark 1", {"", "/a"}),
        ("set -e; set +e; cd /a; mark 1", {"", "/a"}),
        ("x && set -e; cd /a; mark 1", {"", "/a"}),
        ("set -e; if cd /a; then mark 1; fi", {"/a"}),
        ("set -e; f() { cd /a; mark 1; }; f || x", {"", "/a"}),
        ("set -x; cd /a; mark 1", {"", "/a"}),
        ('set "$o"; set -e; cd /a; mark 1', {"", "/a"}),
        ("set -e; shopt -uo errexit; cd /a; mark 1", {"", "/a"}),
        ("if cd /a; then mark 1; fi", {"/a"}),
        ("if ! cd /a; then exit; fi; mark 1", {"/a"}),
        ("if cd /a; then :; else mark 1; fi", {""}),
        ("if cd /a; then :; elif cd /b; then mark 1; fi", {"/b"}),
        ("(cd /a && mark 2); mark 1", {""}),
        ("cd /a && (cd b && mark 1)", {"/a/b"}),
        ("cd /b && sh -c 'cd /a && ls' && mark 1", {"/b"}),
        ("sh -c 'cd /a && mark 1'", {"/a"}),
        ("eval 'cd /a' && mark 1", {"/a"}),
        ('cd /b && ls || eval "c""d /a"; mark 1', {"", "/a", "/b"}),
        ("env -C /a mark 1", {"/a"}),
        ("cd /b && env -C /a ls && mark 1", {"/b"}),
        ("x=$(cd /a && pwd); mark 1", {""}),
        ("cd /a | cat; mark 1", {""}),
        ("cd /a && make 2>&1 | tail -n 3 && mark 1", {"/a"}),
        ("cd /a & mark 1", {""}),
        ("{ cd /a; } && mark 1", {"/a"}),
        ("{ cd /a; } < x; mark 1", {"", "/a"}),
        ("cd a && cd .. && mark 1", {""}),
        ("cd a/b && cd ../c && mark 1", {"a/c"}),
        ("cd .. && mark 1", {".."}),
        ("cd && mark 1", {"~"}),
        ("cd -P /a && mark 1", {"/a"}),
        ("cd /a && cd - && mark 1", {""}),
        ("pushd /a && popd && mark 1", {""}),
        ("pushd /a && cd /b && pushd /c && popd && mark 1", {"/b"}),
        ("pushd +1 && mark 1", {MANY}),
        ("popd && mark 1", {MANY}),
        ("pushd /a; popd; mark 1", {"", "/a"}),
        ("pushd /a; pushd /b; popd; mark 1", {"", "/a", "/b"}),
        ("pushd /a; pushd +1; popd; mark 1", {"", "/a", MANY}),
        ("D=a > /x\nif x; then y; else cd /a; fi; mark 1", {MANY}),
        ("set -e; for d in a b; do cd $d; mark 1; cd ..; done", {"a", "b"}),
        ("set -e; if x; then cd /a; mark 1; fi", {"/a"}),
        ("set -e; for d in a; do cd $d; mark 1; done || x", {"", "a"}),
        ("set -e; for d in a; do cd /$d; mark 1; set +e; done", {"", "/a"}),
        ("set -e; { cd /a; mark 1; } || x", {"", "/a"}),
        ("set -e; if cd /a; mark 1; then x; fi", {"", "/a"}),
        ("set -e; (cd /a; mark 1)", {"", "/a"}),
        ("pushd -n /a && mark 1", {MANY}),
        ("for d in a b; do cd $d && mark 1 && cd ..; done", {"a", "b", "a/b"}),
        ("for d in a b; do cd /$d || continue; mark 1; done", {"/a", "/b"}),
        ("for d in a b; do cd /$d || break; done; mark 1", {"", "/a", "/b"}),
        ("while x; do (cd a && mark 1); done", {"a"}),
        ("while x; do cd a && mark 1; done", {"a", "a/a", MANY}),
        ("case $x in a) cd /a;; *) cd /b;; esac; mark 1", {"", "/a", "/b"}),
        ("trap 'mark 1' EXIT; cd /a", {"", "/a"}),
        ("trap 'cd /a' DEBUG; mark 1", {MANY}),
        ("f() { mark 1; }; cd /a && x=f && command $y", {"", "/a"}),
        ("cd() { builtin cd /b; }; cd /a && mark 1", {"", "/a", "/b"}),
        ('cd "$x" && mark 1', {ANY}),
        ("cd $x && mark 1", {MANY}),
        ("cd $x && cd a && mark 1", {MANY}),
        ('cd "$x" && cd /a && mark 1', {"/a"}),
        ("CDPATH=/srv; cd a && mark 1", {MANY}),
        ("CDPATH=/srv; cd ./a && cd /b && mark 1", {"/b"}),
        ("CDPATH=/srv cd a && mark 1", {MANY}),
        ("for d in a; do (cd $d || continue; mark 1); done", {"", "a"}),
        ("for d in a; do { cd $d || break; mark 1; } | cat; done", {"", "a"}),
        ("for d in a; do bash -c 'cd a || continue; mark 1'; done", {"", "a"}),
        ("x && cd a || x && mark 1", {"", "a"}),
        ("x || cd a && x || mark 1", {"", "a"}),
        ("cd /a || exit & mark 1", {""}),
        ("env -C a sh -c 'mark 1' -C /b", {"a"}),
        ("env -C a env -C c mark 1", {"a/c"}),
        ("env -S '-C a mark 1'", {"a"}),
        ("cd /a || eval 'x || exit'; mark 1", {"", "/a"}),
        ("f() { bash -c 'cd /a || return; mark 1'; }; f", {"", "/a"}),
        ("! { { cd /a; mark 1; }; }", {MANY}),
        ("cd /a || coproc exit; mark 1", {"", "/a"}),
        ("set -e; coproc cd /a; mark 1", {""}),
        ("set -eq; cd /a; mark 1", {"", "/a"}),
        ("set - -e; cd /a; mark 1", {"", "/a"}),
        ("set -e; set -o +e; cd /a; mark 1", {"", "/a"}),
        ("set -e > x; cd /a; mark 1", {"", "/a"}),
        ("cd /a || exit --help; mark 1", {"", "/a"}),
        ('read c < x; "$c" a; mark 1', {"", MANY}),
        ("cd -- -a && mark 1", {"-a"}),
        ("cd a && cd -P .. && mark 1", {MANY}),
        ("trap 'cd /b && mark 1' EXIT; cd /a", {"/b"}),
        ("trap 'cd b && mark 1' EXIT; cd /a", {MANY}),
        ("trap 'cd b' EXIT; cd /a && mark 1", {"/a"}),
        ("cd /a && ssh h 'mark 1'", {f"/{NAME}"}),
        ("exit; mark 1", {""}),
        ("".join(f"cd /{n}; " for n in range(8)) + "mark 1", {MANY}),
    ],
)  # fmt: skip
def test_places(text: str, places: set[str]) -> None:
    assert find_places(text)["1"] == places


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("sudo -D /x mark 1", {"/x"}),
        ("sudo -i mark 1", {MANY}),
        ("sudo -iu bob mark 1", {MANY}),
        ("sudo -u bob mark 1", {""}),
        ("su - bob -c 'mark 1'", {MANY}),
        ("su -l bob -c 'cd /x && mark 1'", {"/x"}),
        ("su bob -c 'mark 1'", {""}),
        ("cd /a && runuser -l bob -c 'mark 1'", {MANY}),
        ("cd /a && runuser -u bob -- mark 1", {"/a"}),
        ("unshare -w /x mark 1", {"/x"}),
        ("unshare -r mark 1", {""}),
        ("nsenter -t 1 -m mark 1", {MANY}),
        ("systemd-run --working-directory=/x mark 1", {"/x"}),
        ("systemd-run --user mark 1", {MANY}),
        ("uv run --directory sub mark 1", {"sub"}),
        ("uv --directory sub run mark 1", {"sub"}),
        ("uv run --project sub mark 1", {""}),
        ("pnpm -C sub exec mark 1", {"sub"}),
        ("pnpm --dir=sub exec mark 1", {"sub"}),
        ("pnpm -r exec mark 1", {MANY}),
        ("npm -C sub exec -- mark 1", {MANY}),
        ("npm exec -- mark 1", {""}),
        ("poetry -C sub run mark 1", {MANY}),
        ("mise x -C sub -- mark 1", {"sub"}),
        ("tmux new -d -c /x 'mark 1'", {"/x"}),
        ("tmux new -d 'mark 1'", {""}),
        ("tmux send-keys -t a 'mark 1' Enter", {MANY}),
        ("parallel --wd /x mark ::: 1", {"/x"}),
        ("env -C /x -S 'mark 1'", {"/x"}),
        ("env -C /x mark 1; mark 2", {"/x", ""}),
        ("cd /a && find . -exec mark 1 \\;", {"/a"}),
        ("find /x -execdir mark 1 \\;", {"/", "/x"}),
        ("find /x -name a -execdir mark 1 \\;", {"/x", f"/x/{NAME}"}),
        ("find . -name a -execdir mark 1 \\; -exec mark 2 \\;; mark 3", {"", f"./{NAME}"}),
        ('find "$X" -execdir mark 1 \\;', {MANY}),
        ("git -C sub submodule foreach 'mark 1'", {MANY}),
        ("git rebase -x 'mark 1' main; mark 2", {MANY, ""}),
        ("git bisect run mark 1", {MANY}),
        ("git -c alias.x='!mark 1' x", {MANY}),
        ("make -C sub --eval='all:; mark 1'", {MANY}),
        ("make --eval='all:; mark 1'", {""}),
        ("tar --to-command='mark 1' -C /x -xf a", {MANY}),
        ("cd /a && echo '* * * * * mark 1' | crontab -", {MANY}),
        ("cd /a && echo 'mark 1' | at now", {"/a"}),
        ("python -c 'import os; os.system(\"mark 1\")'", {""}),
        ('python -c \'import os; os.chdir("/x"); os.system("mark 1")\'; mark 2', {MANY, ""}),
        ('python -c \'import subprocess as s; s.run(["mark", "1"], cwd="/x")\'', {MANY}),
        ('node -e \'execSync("mark 1", {cwd: "/x"})\'', {MANY}),
    ],
)
def test_programs_that_run_a_command_elsewhere(text: str, places: set[str]) -> None:
    assert set[str]().union(*find_places(text).values()) == places


@pytest.mark.parametrize(
    "text",
    [
        "echo 'zap' > a/s.sh; cd a && ./s.sh",
        "echo 'zap' > s.sh; cd a; bash ../s.sh",
        "cd a && echo 'zap' > s.sh && cd .. && bash a/s.sh",
    ],
)
def test_a_file_that_was_written_runs_from_another_folder(text: str) -> None:
    programs = [one.program for one in ShellReader(shell_facts()).read(text).commands]
    assert "zap" in programs


@pytest.mark.parametrize(
    "text",
    [
        "x=$PWD; cd /a && rm $x/b",
        "x=$PWD/b; cd /a && rm $x",
        "x=$(pwd)/b; cd a/c && cd .. && rm $x",
        "x=$PWD; cd /a && cd $x && rm b",
        "x=$PWD; cd $Y; cd $x && rm b",
        "f() { cd /a && rm $1; }; f $PWD/b",
        "x=($PWD/b); cd /a && rm ${x[@]}",
        "x=$PWD/b; for i in 1 2; do cd /a && rm $x; done",
    ],
)
def test_a_path_from_a_folder_stays_the_same_in_another(text: str) -> None:
    assert _find_paths_of_rm(text) == ["b"]


@pytest.mark.parametrize(
    "text",
    [
        "x=($PWD/b); cd /a && rm ${x[0]}",
        "cd $Y; x=$PWD/b; cd /a && rm $x",
        "a && cd b; x=$PWD; cd /a && rm $x",
    ],
)
def test_a_path_from_an_unknown_folder_is_unknown_in_another(text: str) -> None:
    assert f"/{NAME}" in _find_paths_of_rm(text)


def _find_paths_of_rm(text: str) -> list[str]:
    reader = ShellReader(shell_facts())
    line = reader.read(text)
    removing = [index for index, one in enumerate(line.commands) if one.program == "rm"]
    return [*dict.fromkeys(map(normalize, find_paths_of(line, reader, removing)))]


class Script:
    """A random script that moves about in folders and marks where it is."""

    def __init__(self, seed: int, root: Path) -> None:
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._root = root
        self._marks = 0
        size = self._random.randint(1, 5)
        statements = [self.statement(3) for _ in range(size)]
        self.text = self._pick("\n", "; ").join(
            [self._pick("", "set -e;") + one for one in statements]
        )

    def _pick(self, *choices: str) -> str:
        return self._random.choice(choices)

    def mark(self) -> str:
        self._marks += 1
        return f"mark {self._marks}{self._pick('', ' 1')}"

    def simple(self) -> str:
        kind = self._random.random()
        if kind < 0.45:
            root = self._root
            target = self._pick(
                "a", "b", "..", "a/c", "none", "../a", f"{root}/other", f"{root}/none", "./b", "-",
                "$D", '"$D"', "c", "$PWD/a", "", '"$E"', "$E/a",
            )  # fmt: skip
            return f"{self._pick('cd', 'cd', 'cd', 'pushd')} {target}"
        if kind < 0.85:
            return self.mark()
        return self._pick(
            "popd", "popd", "popd", "true", "false", "exit", "exit 1", "exit 1 2", "return",
            "continue", "break",
            "set -e", "set +e", "set -eu", "D=a", "D=none", "D=$PWD", "D=$PWD/a", "f", "g a",
            'D="${D%/*}"', 'D="${D##*/}"', 'D="${D#./}/b"', "read -r D <<< b",
            "E=$PWD", "E=$(pwd)/a", "E=$D", 'E="$D/../b"', "read -r D E <<< 'a b'",
            "IFS=: read D E <<< a/c:b", 'D="${E##*/}"',
        )  # fmt: skip

    def statement(self, depth: int) -> str:
        if not depth or self._random.random() < 0.3:
            return self.simple()
        one, two = (self.statement(depth - 1) for _ in range(2))
        some, more = (self.several(depth - 1) for _ in range(2))
        plain = some.replace("'", "")
        return self._pick(
            f"{one} && {two}",
            f"{one} || {two}",
            f"{self.simple()} || {self._pick('exit', 'return', 'continue', '{ mark 0; exit 1; }')}",
            f"( {some} )",
            f"{{ {some}; }}",
            f"if {some}; then {more}; fi",
            f"if {one}; then {some}; else {more}; fi",
            f"if ! {self.simple()}; then {some}; elif {self.simple()}; then {more}; fi",
            f"for D in a b; do {some}; done",
            f"for D in a none ..; do {some}; done",
            f"for D in a a/c none .. b c ./a; do {some}; done",
            f"printf '%s\\n' a a/c b .. none a | while read -r D; do {some}; done",
            f"while read D E; do {some}; done <<< $'a b\\n..\\nb a'",
            f"until read -r D; do {some}; done <<< a",
            f"n=0; while [ $n -lt 3 ]; do n=$((n+1)); {some}; done",
            f"f() {{ {some}; }}",
            f"g() {{ cd $1 || return; {some}; }}",
            f"bash -c '{plain}'",
            f"eval '{plain}'",
            f"{one} | {two}",
            f"! {self.simple()}",
            f"{{ {some}; }} & wait",
            f"{self.simple()} > /dev/null 2>&1",
            f"{{ {some}; }} < {self._pick('/dev/null', '/none/x')}",
            f"env -C {self._pick('a', 'none')} {self.mark()}",
            f"X=$( {some})",
            f"case $D in a) {some};; *) {more};; esac",
        )

    def several(self, depth: int) -> str:
        return "; ".join(self.statement(depth) for _ in range(self._random.randint(1, 3)))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folders").resolve()
    for name in ("start/a/c/d", "start/a/b", "start/b/a", "other/a", "bin"):
        (folder / name).mkdir(parents=True)
    mark = folder / "bin" / "mark"
    mark.write_text('#!/bin/sh\necho "$1 $PWD" >> "$LOG"\nexit ${2:-0}\n')
    mark.chmod(0o755)
    return folder


@pytest.mark.skipif(BASH is None, reason="needs bash")
@settings(max_examples=examples(60, 3000), deadline=None)
@given(st.integers(0, 10**9))
def test_bash_is_where_the_reader_expects_it(root: Path, seed: int) -> None:
    text = Script(seed, root).text
    log = root / f"{seed}.log"
    log.touch()
    environment = {"PATH": f"{root}/bin:{os.defpath}", "HOME": f"{root}/other", "LOG": str(log)}
    try:
        subprocess.run(
            [str(BASH), "-c", text],
            cwd=root / "start",
            env=environment,
            capture_output=True,
            timeout=20,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return  # a function that calls itself
    places = find_places(text)
    is_opaque = bool(ShellReader(shell_facts()).read(text).opaque)
    for line in set(log.read_text().splitlines()):
        number, _, place = line.partition(" ")
        if number:
            folders = places.get(number, {MANY}) if is_opaque else places[number]
            assert any(_may_be_at(folder, place, root) for folder in folders), text


def _may_be_at(folder: str, place: str, root: Path) -> bool:
    if any(mark in folder for mark in MARKS):
        return True
    folder = folder.replace("~", f"{root}/other")
    return posixpath.normpath(posixpath.join(root, "start", folder)) == place
