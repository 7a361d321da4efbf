"""What bash runs, the reader sees: random scripts run, and each program they start is logged."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard.shell.pattern import CommandPattern
from policyguard.shell.pattern_set import CommandPatterns
from policyguard.shell.pattern_set import CommandPatterns as Patterns
from tests.examples import examples
from tests.shell.shell_cases import read_case, shell_reader

TOOLS = (
    "bash",
    "sh",
    "cat",
    "seq",
    "env",
    "xargs",
    "find",
    "nice",
    "timeout",
    "base64",
    "tr",
    "tee",
)
BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(
    BASH is None or not all(map(shutil.which, TOOLS)), reason=f"needs {', '.join(TOOLS)}"
)
PATTERN = "zap -r"


def _spellings(word: str) -> st.SearchStrategy[str]:
    """Spellings of a word: quotes, escapes, substitutions, braces, variables."""
    octal = "".join(f"\\{ord(letter):03o}" for letter in word)
    head, tail = word[:1], word[1:]
    return st.sampled_from(
        [
            word,
            word,
            f"'{word}'",
            f'"{word}"',
            f"{head}''{tail}",
            f'"{head}"{tail}',
            f"{head}\\{tail}",
            f"\\{word}",
            f"$'{octal}'",
            f"$'{head}'{tail}",
            f"$(echo {word})",
            f"`echo {word}`",
            f'"$(echo {word})"',
            f"$(printf %s {word})",
            f"${{x:-{word}}}",
            f"${{none}}{word}",
            f'"${{none}}"{word}',
            f"{word}$none",
            f"{head}\\\n{tail}",
            f"$({head}=1; echo {word})",
            f"$(cat <<< {word})",
            f"$(base64 -d <<< $(base64 <<< {word}))",
            f"$'\\x{ord(head):x}'{tail}",
        ]
    )


COMMANDS = st.one_of(
    st.tuples(_spellings("zap"), _spellings("-r"), st.sampled_from(["", " x", " -- y"])).map(
        lambda parts: f"{parts[0]} {parts[1]}{parts[2]}"
    ),
    st.sampled_from(
        [
            "zap -fr",
            "zap x -r",
            "zap -f -r",
            "{zap,-r}",
            "zap -{f,r}",
            "zap${IFS}-r",
            "zap$IFS-r",
            "p=zap; $p -r",
            "p=zap; o=-r; $p $o",
            'p=zap; o=-r; "$p" "$o"',
            "p='zap -r'; $p",
            "p='zap -r'; eval $p",
            'p="zap -r"; eval "$p"',
            "p=z; p+=ap; $p -r",
            "a=(zap -r); ${a[@]}",
            'a=(zap -r); "${a[@]}"',
            "set -- zap -r; $@",
            'set -- -r; zap "$@"',
            "for o in -r; do zap $o; done",
            "for p in zap; do $p -r; done",
            "for o in a -r b; do zap $o; done",
            'for o in a b c d e -r; do zap "$o"; done',
            "while read o; do zap $o; done <<< -r",
            'read -r p o <<< "zap -r"; $p $o',
            "printf -v p zap; $p -r",
            "p=xzap; ${p#x} -r",
            "p=zapx; ${p%x} -r",
            "p=ZAP; ${p,,} -r",
            "p=q; ${p/q/zap} -r",
            "z=zap; p=z; ${!p} -r",
            "echo -r | xargs zap",
            "echo zap -r | xargs env",
            "printf '%s\\n' -r | xargs -I{} zap {}",
            "printf '%s\\n' -r | xargs -n1 zap",
            "echo zap -r | bash",
            "echo 'zap -r' | sh",
            "tr q z <<< 'qap -r' | bash",
            "base64 -d <<< emFwIC1yCg== | sh",
            "bash <<< 'zap -r'",
            "bash <<E\nzap -r\nE",
            "bash <<'E'\nzap -r\nE",
            "cat <<E | bash\nzap -r\nE",
            "cat <<E\n$(zap -r)\nE",
            "cat <<-E | bash\n\tzap -r\n\tE",
            "bash <<E; echo y\nzap -r\nE",
            "bash <(echo zap -r)",
            "source <(echo zap -r)",
            ". /dev/stdin <<< 'zap -r'",
            "echo 'zap -r' > s; bash s",
            "echo 'zap -r' > s; . ./s",
            "echo 'zap -r' | tee s >/dev/null; bash s",
            "cat > s <<E; bash s\nzap -r\nE",
            "bash -c 'zap -r'",
            "bash -c 'zap \"$1\"' _ -r",
            "bash -c '$0 -r' zap",
            'bash -c "zap -r"',
            "bash -ec 'zap -r'",
            "bash -c -e 'zap -r'",
            "sh -c 'eval zap -r'",
            "env zap -r",
            'env -i PATH="$PATH" LOG="$LOG" zap -r',
            "env A=1 zap -r",
            "env -S 'zap -r'",
            "A=1 zap -r",
            "nice -n 1 zap -r",
            "timeout 5 zap -r",
            "timeout -s KILL 5 zap -r",
            "command zap -r",
            "exec zap -r",
            "find . -maxdepth 0 -exec zap -r {} \\;",
            "find . -maxdepth 0 -exec bash -c 'zap -r' \\;",
            "alias q='zap -r'\nshopt -s expand_aliases\nq",
            "trap 'zap -r' EXIT",
            "q() { zap -r; }; q",
            'q() { zap "$@"; }; q -r',
            'q() { "$@"; }; q zap -r',
            "function q { zap $1; }; q -r",
            "[[ -n $(zap -r) ]]",
            "(( $(zap -r; echo 1) ))",
            "echo $(( $(zap -r; echo 1) + 1 ))",
            "x=$(zap -r)",
            "export x=$(zap -r)",
            "x=(a $(zap -r))",
            "echo ${x:-$(zap -r)}",
            'echo "a ${x:-`zap -r`} b"',
            "case $(zap -r) in *) ;; esac",
            "for i in $(zap -r); do :; done",
            "echo > >(zap -r)",
            "cat < <(zap -r)",
            "echo x | tee >(zap -r)",
            "! zap -r",
            "time zap -r",
            "coproc zap -r; wait",
            ">o zap -r",
            "zap -r 2>&1 >/dev/null",
            "zap >o -r",
            "zap <<< x -r",
            "zap -r <<E\nE",
            "<<E zap -r\nE",
            "zap -r # comment",
            "# it's\nzap -r",
            "echo a#b; zap -r",
            "echo '#'; zap -r",
            "zap \\\n  -r",
            "echo $((1<<2)); zap -r",
            "let 'x=1<<2'; zap -r",
            'echo "a\\"b"; zap -r',
            "echo 'a\\'; zap -r",
            'echo ${x#"}"}; zap -r',
            'echo "${x:-\'}"; zap -r; echo "\'"',
            "IFS=,; p=zap,-r; $p",
        ]
    ),
)


def _nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    forms = st.sampled_from(
        [
            "{0}",
            "{0}\n",
            "true; {0}",
            "true && {0}",
            "false || {0}",
            "({0}\n)",
            "{{ {0}\n}}",
            "if true; then {0}\nfi",
            "if false; then :; else {0}\nfi",
            "if {0}\nthen :; fi",
            "while {0}\nbreak; do :; done",
            "for i in 1; do {0}\ndone",
            "for ((i=0;i<1;i++)); do {0}\ndone",
            "case a in a) {0}\n;; esac",
            "echo a | {{ {0}\n}}",
            "echo $({0}\n)",
            'echo "$({0}\n)"',
            "{{ {0}\n}} > out",
            "({0}\n) 2>/dev/null | cat",
            "true && true 2>&1 | {{ {0}\n}}",
            "cat <<'EOF'\nit's \"\nEOF\n{0}",
            "cat <<EOF; {0}\n$x `echo y`\nEOF",
            "f() {{ {0}\n}}; f",
            "{0}\n{0}",
            "x='a b'; {0}",
            "echo 'it'\"'\"'s'; {0}",
            "# don't\n{0}",
        ]
    )
    return st.tuples(forms, inner).map(lambda pair: pair[0].format(pair[1]))


SCRIPTS = st.recursive(COMMANDS, _nested, max_leaves=4)


CHANGES = (
    *("shift", "shift 2", "shift $n", "set -u", "set -- a zap -r", "set -- zap -r", "set a b"),
    *("p=zap", "p=true", "p=", "o=-r", "o=x", "n=1", "unset p", "export o=-r", "p+=zap", "o+=r"),
    *("eval shift", "eval 'p=true'", "declare p=true", 'read -r p <<< "zap"', "return", "break"),
    *("q=$p; p=zap", "p=$q", 'p="$1 $2"', "p=$(echo zap)", "p=zap\\ -r", "x=$p", "p=$x"),
    *(
        "\\export p=zap",
        "printf -vp zap",
        "((n++))",
        "let n=2",
        'set -- "" "$1"',
        'set -- "$1" zap',
    ),
    *("local p", "time p=zap", "for p in zap true; do break; done", "IFS=0", "p=zap0-r", "n=2"),
    *("readonly p=zap", "readonly p", "local p=true", "local o=x", "declare -g p=zap", "continue"),
    *("if [ $n ]; then p=zap; else p=true; fi", "for p in true zap; do :; done", "p=$p$o"),
    *("case $1 in a) p=zap;; *) p=true;; esac", "p=zap; return", "o=-r; break", "p=za; p+=p"),
    *("export p", "export p=true", "export p o", "export -n p", "declare +x p", "declare -x o=x"),
    *("set -a", "sh -c 'p=zap'", "export q p=zap", "unset p; p=true", "eval 'export p=true'"),
    *("p=(true)", "declare -a p", "declare -gx p=true", "trap 'unset p' DEBUG", "readonly p o=x"),
    *("a=(zap)", "a=(true)", "a=()", "a+=(-r)", "a+=(x)", 'a+=("$@")', "a[0]=zap", 'p="${a[*]}"'),
)
PLACES = (
    *("{0}", "true && {0}", "false && {0}", "true || {0}", "false || {0}", "( {0} )", "{0} & wait"),
    *("if true; then {0}; fi", "if false; then {0}; fi", "if false; then :; else {0}; fi"),
    *("if {0}; then :; fi", "case $1 in a) {0};; *) {1};; esac", "{0} | cat", "true | {0}"),
    *("{{ {0}; }}", "{{ {0}; }} < gone", "x=$({0})", "cat <({0})", "echo > >({0})", "{0} > o"),
    *("for i in 1 2; do {1}; {0}; done", "for w; do {0}; {1}; done", "k() {{ {0}; }}", "env {0}"),
    *("while ((k++ < 2)); do {1}; {0}; done", "until ((k++ > 1)); do {1}; {0}; done"),
    *("for ((; i++ < 2; )); do {1}; {0}; done", "k() {{ {0}; }}; k a zap -r", "{0}; {1}"),
    *("false && {0} || {1}", "true && {0} || {1}", "true || {0} && {1}", "! {{ {0}; }}; {1}"),
    *(
        "k() {{ :; }}; k() {{ {0}; }}; k a zap",
        "for i in *; do {1}; {0}; done",
        "time {{ {0}; }}; {1}",
    ),
    *(
        "for i in 1 2 3 4 5 6; do {1}; {0}; done",
        "trap '{0}' EXIT; {1}",
        "if false; then {0}; fi; {1}",
    ),
    *("if false; then {1}; else {0}; fi", "if false; then {1}; elif true; then {0}; fi"),
    *("case $1 in a) {0};; true) {1};; *) ;; esac", "case a in a) {0};& *) {1};; esac"),
    *("for w in 1 2; do if ((j++)); then {0}; else {1}; fi; done", "k() {{ {1}; {0}; }}; k a"),
    *("k() {{ local p; {0}; {1}; }}; k zap", "k() {{ {0}; local o p=x; {1}; }}; k zap -r"),
    *("for w in a b; do if ((j++)); then {0}; break; fi; {1}; done", "p=zap p=true; {0}; {1}"),
)
STARTS = ("", "p=true; o=x", "q=true", "a=(true x)", "a=(zap); o=x")
USES = (
    *("$p zap -r", "$p -r", "zap $o", '"$@"', "$*", '"$1" -r', '"${2:-true}" -r', '"${@:2}"', "$p"),
    *("${1-zap} -r", "${3:+zap -r}", "${p:-zap} -r", '"${p:-zap}" "${o:--r}"', '$2 "$3"', "g -r"),
    *(
        'for w; do zap "$w"; done',
        'zap "${@: -1}"',
        "zap ${1#a}",
        'for w in "$@"; do "$w" -r; done',
    ),
    *(
        '"${@:+x}" zap -r',
        'bash -c \'"$@"\' _ "$@"',
        "sh <<E\n$@\nE",
        'eval "$@"',
        "$q -r",
        "${p}zap -r",
        *('"${a[@]}"', 'zap "${a[@]}"', "${a[*]} -r", '"${a[0]}" -r', "$a -r", "zap ${a[@]+$o}"),
        'for w in "${a[@]}"; do $w -r; done',
    ),
    *("sh -c '$p zap -r'", "bash -c '${p}zap -r'", "sh -c '$p $q zap $o -r'", "sh <<< '$p zap -r'"),
    *('env -i PATH="$PATH" LOG="$LOG" sh -c \'$p zap -r\'', "env -u p bash -c '$p zap -r'"),
    *(
        "p=true env -u p sh -c '$p zap -r'",
        "sh -c 'p=true; sh -c \"\\$p zap -r\"'",
        "p=true $p zap -r",
    ),
    *("p=true sh -c '$p zap -r'", "echo x | xargs sh -c '$p zap -r'", "sh -c 'zap ${o:--r}'"),
    *(
        "find . -maxdepth 0 -exec sh -c '$p zap -r' \\;",
        "echo '$p zap -r' > s; sh s",
        "(sh -c '$p -r')",
    ),
)


@st.composite
def flows(draw: st.DrawFn) -> str:
    """Draw a script that changes variables, or `$1` and so on, in a part that may not run."""
    use = draw(st.sampled_from(USES))
    script = draw(st.sampled_from(CHANGES))
    others = [":", use, draw(st.sampled_from(CHANGES))]
    for _ in range(draw(st.integers(1, 3))):
        script = draw(st.sampled_from(PLACES)).format(script, draw(st.sampled_from(others)))
    script = f"{draw(st.sampled_from(STARTS))}\n{script}\n{use}"
    if "g -r" in script:  # one that is not called is read with words that are not known
        script = f'g() {{ $p "$@"; }}\n{script}'
    given = draw(st.sampled_from(["zap -r", "true zap -r", "a b zap -r", "", "zap -r true"]))
    if draw(st.booleans()):
        return f"set -- {given}\n{script}"
    return f"f() {{\n{script}\n}}\nf {given}"


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder whose `bin` is all the PATH that scripts have; `zap` logs its arguments."""
    folder = tmp_path_factory.mktemp("sandbox")
    tools = folder / "bin"
    tools.mkdir()
    for name in TOOLS:
        (tools / name).symlink_to(str(shutil.which(name)))
    zap = tools / "zap"
    zap.write_text(f'#!{BASH}\nfor word; do printf "%s\\n" "$word"; done >> "$LOG"\n')
    zap.chmod(0o755)
    return folder


def _runs_pattern(sandbox: Path, script: str) -> bool:
    """Run `script`; return whether it started `zap` with an option that has an `r`."""
    work = sandbox / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    log = sandbox / "log"
    log.write_text("")
    environment = {"PATH": str(sandbox / "bin"), "LOG": str(log), "HOME": str(work)}
    environment["FUNCNEST"] = "20"  # functions may call themselves
    subprocess.run(
        [str(BASH), "--norc", "-c", script],
        env=environment,
        cwd=work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=False,
    )
    return any(
        line.startswith("-") and not line.startswith("--") and "r" in line
        for line in log.read_text().splitlines()
    )


@pytest.fixture(scope="module")
def patterns() -> Patterns:
    return CommandPatterns([CommandPattern(PATTERN)], shell_reader())


@settings(max_examples=examples(150))
@given(script=SCRIPTS)
def test_what_bash_runs_is_seen(sandbox: Path, patterns: Patterns, script: str) -> None:
    if patterns.find(script) is None:
        assert not _runs_pattern(sandbox, script)


@settings(max_examples=examples(300))
@given(script=flows())
def test_what_bash_runs_with_changed_variables_is_seen(
    sandbox: Path, patterns: Patterns, script: str
) -> None:
    if patterns.find(script) is None:
        assert not _runs_pattern(sandbox, script)


def test_bash_runs_what_is_blocked(sandbox: Path) -> None:
    texts = read_case("attacks")["changed_variables"]["blocked"]
    assert [text for text in texts if not _runs_pattern(sandbox, text)] == []


def test_scripts_run_the_pattern(sandbox: Path) -> None:
    assert _runs_pattern(sandbox, "p=zap; $p -fr")
    assert not _runs_pattern(sandbox, "zap -f; echo zap -r")
    assert not list((sandbox / "work").iterdir())
