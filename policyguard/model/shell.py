"""What programs do with their arguments, as `classify.shell` gives it."""

# No `annotations` from `__future__`: msgspec would compile the text of each by itself.

from typing import Literal

import msgspec

from policyguard.model.entry import PolicyStruct


class ShellBounds(PolicyStruct, frozen=True, kw_only=True):
    """Bounds of one reading; a text beyond them is opaque."""

    chars: int
    """The longest text, in code points."""
    depth: int
    """How deeply constructs, and texts within texts, may nest."""
    commands: int
    """How many simple commands one text may hold."""
    words: int
    """How many words one command may have, after braces are expanded."""
    statements: int
    """How many statements, and parts of words, are read: those of a function at each call."""
    loop_values: int
    """For how many values of a loop its body is read one by one, and how many values are known of
    a variable that may have one of several."""
    milliseconds: int
    """How long the parser may take for one text."""
    texts: int
    """How many readings are kept."""


class Wrapper(PolicyStruct, frozen=True, kw_only=True):
    """A program that runs the command in its own arguments, or a command text."""

    values: tuple[str, ...] = ()
    """Its options that take a value."""
    program: tuple[str, ...] = ()
    """Options whose value is the program, with the rest for its arguments, as `--entrypoint` of
    docker run."""
    folder: tuple[str, ...] = ()
    """Options whose value is the folder in which the command runs, as `-C` of env."""
    unknown_folder: bool | tuple[str, ...] = False
    """Whether the command runs in a folder that is not known, unless an option of `folder` names
    it; a tuple holds the options with which it does, as `-i` of sudo."""
    mounts: tuple[str, ...] = ()
    """Options that give a folder another name where the command runs, as `-v` of docker run."""
    runs: str = ""
    """The program that it runs, with the rest for its arguments, as kubectl of `minikube kubectl`,
    unless an option of `program` names another."""
    input_program: str = ""
    """The program that runs its input, if `-` stands for the command, as python of `uv run -`."""
    images: dict[str, str] = msgspec.field(default_factory=dict)
    """By the end of its first operand, without a tag: the program that it runs, in the same way, as
    `hashicorp/terraform` of docker run."""
    operands: int = 0
    """How many operands of its own stand before the command."""
    assignments: bool = False
    """Whether `NAME=value` may stand before the command."""
    after: tuple[str, ...] = ()
    """Words that a command follows, up to `;` or `+`, as `-exec` of find."""
    names: tuple[str, ...] = ()
    """Options whose value is a pattern for the names that it finds, as `-name` of find."""
    appends: bool = False
    """Whether it adds words from its input to the command, as xargs."""
    input_from: tuple[str, ...] = ()
    """Options that name the file that it reads instead of its input, as `-a` of xargs."""
    separators: tuple[str, ...] = ()
    """Options that name what ends the words of its input, as `-d` of xargs."""
    inline: tuple[str, ...] = ()
    """Words behind which its input stands among its own words, as `:::` of parallel."""
    replaces: tuple[str, ...] = ()
    """Options whose value is a placeholder for a line of its input, as `-I` of xargs."""
    attached: tuple[str, ...] = ()
    """Those of `replaces` whose placeholder, if any, may have to be part of the same word, as `-i`
    of xargs."""
    whole: tuple[str, ...] = ()
    """Options with which spaces in its input end no word, as `-0` of xargs."""
    pairs: tuple[str, ...] = ()
    """Its options that take two values, as `--bind` of bwrap."""
    text: tuple[str, ...] = ()
    """Options whose value is a command text, as `-c` of sh."""
    file: tuple[str, ...] = ()
    """Options that name a file of commands, as `--rcfile` of bash."""
    defines: bool = False
    """Whether its operands are names with command texts, as of alias."""
    joins: bool = False
    """Whether its remaining operands, joined by spaces, are a command text, as of eval."""
    script: bool = False
    """Whether it runs its input as a command text if it has no operand, as sh."""
    starts_shell: bool = False
    """Whether it starts a shell, which runs its input, if no command is given, as `sudo -s`."""
    sources: bool = False
    """Whether its first operand is a file of commands."""
    harmless: bool = False
    """Whether the command does the same without it, but for its time and priority."""
    idle: tuple[str, ...] = ()
    """Its first options with which it runs nothing, as `-v` of command."""
    read_only: bool = False
    """Whether it changes nothing itself, as xargs."""
    same_shell: bool = False
    """Whether the shell itself runs the command, with all its variables, as that of eval."""
    clears: bool = False
    """Whether the command may not get exported variables, as that of sudo."""
    elsewhere: bool = False
    """Whether the command runs on another system, as that of ssh: variables are others there, and
    so is the folder, unless an option of `folder` names it."""
    feeds: bool = False
    """Whether the command reads something that cannot be seen, as that of coproc."""
    later: bool = False
    """Whether the command runs at other times, when variables have other values, as of trap."""


class CodeRunner(PolicyStruct, frozen=True, kw_only=True):
    """A program that runs code of another language."""

    values: tuple[str, ...] = ()
    """Its options that take a value, apart from code."""
    code: tuple[str, ...] = ()
    """Options whose value is code."""
    operand: bool = False
    """Whether its first operand is code unless one of `file` is given."""
    file: tuple[str, ...] = ()
    """Options that name a file of code instead."""
    modules: tuple[str, ...] = ()
    """Options behind which a program stands with its arguments, as `-m` of python."""
    script: bool = False
    """Whether it runs its input as code if it has no operand."""
    runs_by: tuple[str, ...] = ()
    """Texts one of which code must contain to run a command; empty: any code may."""
    command_calls: tuple[str, ...] = ()
    """Texts one of which code, or an argument, must contain to run a command whose program is not
    written out, or to write a script; empty: any code may. Without one, "`x` is new" is prose.
    Where `"$x"` is a variable, they include those with which code uses a file of such a name."""
    prints: str = ""
    """RE2 for code that does nothing but print texts, which it neither runs nor reads."""
    writes: tuple[str, ...] = ()
    """Texts one of which code must contain to write a file."""
    evaluates: tuple[str, ...] = ()
    """Texts with which code may run its input, as `exec(` of python."""
    hidden: bool = False
    """Whether it is another shell: what it runs is not read at all."""
    calls: dict[str, str] = msgspec.field(default_factory=dict)
    """Calls of the language (`shutil.rmtree`) and the command that does the same (`rm -r`)."""


class Program(PolicyStruct, frozen=True, kw_only=True):
    """How the arguments of a program are read, and what they change."""

    values: tuple[str, ...] = ()
    """All its options that take a value; empty: any option may."""
    pairs: tuple[str, ...] = ()
    """Its options that take two values, the second of which counts, as `--arg` of jq."""
    plain: tuple[str, ...] = ()
    """Options before the subcommand that do not change what the command does."""
    long: bool = False
    """Whether its options are words after one dash, as `-delete` of find."""
    reads: Literal["operands", "rest", "written", "none"] | None = None
    """Which operands it reads as files (`rest`: all but the first, `written`: any word that holds
    nothing unknown); None: any word may be one."""
    script_options: tuple[str, ...] = ()
    """Options with which its first operand is a file too, where it `reads` the rest, as `-e` of
    grep."""
    loads: tuple[str, ...] = ()
    """What it reads besides: options with a file (`--env-file`), and subcommands (of one word, or
    two) of which it reads the operands that are written out."""
    globs: tuple[str, ...] = ()
    """Options whose value is a glob of the files that it reads, as `--include` of grep; one that
    begins with `!` leaves files out."""
    reads_with: tuple[str, ...] = ()
    """Options and subcommands with which a program that `reads: none` reads all operands, as
    `--no-index` of git."""
    folder: tuple[str, ...] = ()
    """Options whose value is the folder in which it works, as `-C` of git."""
    unknown_folder: bool | tuple[str, ...] = False
    """Whether command texts that it runs do so in a folder that is not known, as aliases of git do
    at the top of a repository; a tuple holds the options with which they do."""
    writes: tuple[str, ...] = ()
    """What it writes: an option with a value, `operands`, `second`, `last` (unless there is such an
    option before), or a prefix (`of=`)."""
    edits: tuple[str, ...] = ()
    """Options with which it writes the files that it reads, as `-i` of sed."""
    reads_behind: str = ""
    """RE2 in a word, behind which the name of a file stands that it reads, as `r` of sed."""
    writes_behind: str = ""
    """RE2 in a word, behind which the name of a file stands that it writes, as `w` of sed."""
    values_for: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """By subcommand, options that take a value behind it, as `-b` of `git checkout`."""
    keeps_lines: tuple[str, ...] = ()
    """Options with which it prints some of the lines that it reads, as `-v` of grep; a number is
    one, too."""
    prints_others: tuple[str, ...] = ()
    """Options with which it prints something else than names, as `-printf` of find."""
    prints: bool = False
    """Whether its words are only printed, as those of echo: they name no files."""
    connects: Literal["operands", "first", "remotes"] | None = None
    """Which operands are hosts: all, the first, or those like `user@host:path`. URLs are found
    anyway."""
    connects_by: tuple[str, ...] = ()
    """Options whose value is a host, or several with commas between them, as `-h` of psql."""
    offline: tuple[str, ...] = ()
    """Subcommands that connect to no host, where it connects to `remotes`: what looks like one
    there is something else, as `HEAD:file` of git `show`."""
    refspecs: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """By subcommand, the options with which only its first operand may be a host, as of git `push
    -u origin HEAD:main`."""
    scheme: str = "http"
    """The scheme of a host that stands without one."""
    saves: bool | tuple[str, ...] = False
    """Whether it saves what it downloads under the last part of the address; a tuple holds the
    options with which it does, as `-O` of curl."""
    saves_in: tuple[str, ...] = ()
    """Options whose value is the folder for that."""
    read_only: bool | tuple[str, ...] = False
    """Whether it changes nothing; a tuple names the subcommands (of one word, or two) of which
    that holds."""
    script: str = ""
    """RE2 that its first operand, if any, must match if it is to change nothing, as for sed."""
    changes: tuple[str, ...] = ()
    """Options and words with which it changes something nevertheless."""
    same: tuple[tuple[str, ...], ...] = ()
    """Options that mean the same, as `-f` and `--force`."""
    same_for: dict[str, tuple[tuple[str, ...], ...]] = msgspec.field(default_factory=dict)
    """By subcommand, its last word: options that mean the same to it alone, as to docker `rm`."""
    text: tuple[str, ...] = ()
    """Further options whose value is a command text, as `--upload-pack` of git; `operands`: each
    other word is one."""
    runs: str = ""
    """RE2 in a word, behind which a command text stands, as `^alias[.][^=]+=!` for git."""
    prose: tuple[str, ...] = ()
    """Options whose value is text, in which `runs` is not looked for; it names no file unless it
    begins with `@`, as of `-H` of curl."""
    own: str = ""
    """RE2 for what `runs` matched, behind which words of the program itself stand, as those of an
    alias of git."""
    settings: tuple[str, ...] = ()
    """Words behind which a setting and its value are two words, as `config` of git: `runs` is
    looked for in `setting=value`."""
    hides: str = ""
    """RE2 in a word with which it runs what cannot be seen, as `s///e` for sed."""
    input: Literal["none", "texts", "commands"] | None = None
    """`none`: it reads nothing from its input, as rm. `texts`: lines of its input, and of files
    that the text wrote for it, may hold what `runs` finds. `commands`: that is all there is in its
    input, as of crontab; if it is not known, what runs cannot be seen."""

    @property
    def runs_input(self) -> bool:
        """Whether commands may stand in its input."""
        return self.input in ("texts", "commands")


class Shell(PolicyStruct, frozen=True, kw_only=True):
    """All that a policy says about command texts: where they are, what programs do in a shell."""

    bounds: ShellBounds
    arguments: tuple[str, ...] = ()
    """Names of the arguments of tools that may hold a command text."""
    words: tuple[str, ...] = ()
    """Names of the arguments that may hold a list of words behind that text."""
    lists: tuple[str, ...] = ()
    """Names of the arguments that may hold a list of command texts."""
    first_line_tools: tuple[str, ...] = ()
    """Tools of whose command text only the first line is a command: text for a file follows."""
    wrappers: dict[str, Wrapper] = msgspec.field(default_factory=dict)
    """By program, or by program and subcommand (`docker exec`); `*` stands for any text."""
    code: dict[str, CodeRunner] = msgspec.field(default_factory=dict)
    """Programs that run code of another language; `*` stands for any text."""
    programs: dict[str, Program] = msgspec.field(default_factory=dict)
    names: tuple[str, ...] = ()
    """Programs that print file names and the like, so that their output holds no option."""
    file_names: tuple[str, ...] = ()
    """Commands that print names of files below their operands, or below the current folder, as
    `grep -l`."""
    variables: tuple[str, ...] = ()
    """Variables whose value is one word and no option, as HOME."""
    name_variables: tuple[str, ...] = ()
    """Variables whose value is one word without a slash, and no option, as USER."""
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    """What variables hold that a text does not assign."""
    command_variables: tuple[str, ...] = ()
    """Variables whose value is a command text, as PAGER."""
    option_variables: dict[str, str] = msgspec.field(default_factory=dict)
    """Variables whose value are options of a program, as TAR_OPTIONS, and that program."""
    unlisted_text: tuple[str, ...] = ()
    """Options whose value may be a command text where no list has the program, as `--command`."""
    unlisted_after: tuple[str, ...] = ()
    """Words that a command may follow where no list has the program, as `--`."""
    moving_code: tuple[str, ...] = ()
    """Texts one of which code of another language must contain to change the folder."""
    running_code: tuple[str, ...] = ()
    """Texts one of which code of another language must contain to run what it reads."""
    computed_code: str = ""
    """RE2 for calls in code of other languages that run what cannot be seen, such as an argument
    of the program."""
    calling_code: tuple[str, ...] = ()
    """Calls of other languages that run the text behind them as a command, as `os.system(`."""
    reading_code: tuple[str, ...] = ()
    """Calls of other languages that read the file that is named first, as `open(`."""
    setups: tuple[str, ...] = ()
    """Commands that only print settings for the shell to run, as `pyenv init`."""
    neutral: tuple[str, ...] = ()
    """Variables that do not change what a program does, as LANG."""
    folders: tuple[str, ...] = ()
    """Folders whose programs are those of the system, as /usr/bin."""
