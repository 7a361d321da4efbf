"""Why nothing can have a name: invisible or look-alike letters, a regex, a list, a permission."""

from __future__ import annotations

import re
import unicodedata

from policyguard.model.diagnostic import quote_text
from policyguard.model.entry import EXCEPT

_LOOKALIKE_SCRIPTS = ("CYRILLIC", "ARMENIAN", "CHEROKEE", "FULLWIDTH")
_LOOKALIKE_GREEK = frozenset("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧαικνορτυχγϲϳ")
"""Greek letters that look like Latin ones; a `μ` is a unit."""
_LOOKALIKE_SIGNS = {
    **dict.fromkeys("‐‑‒–—―−﹣－", "-"),
    **{chr(code + 0xFEE0): chr(code) for code in range(0x21, 0x7F) if not chr(code).isalnum()},
}
_ASCII_LETTERS = re.compile(r"(?:[a-zA-Z]|[\W\d_])*")
_WILDCARD_SIGNS = frozenset("＊？｜")
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Zl", "Zp"})
_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters and marks that show nothing."""
_JOINERS = frozenset("\u200c\u200d\ufe0f")
"""Invisible, but spelling needs them in some scripts, and so do emoji."""
_PERMISSION = re.compile(r"([^\s()|^$\\]+)\(([^|]*)\)")
_GROUP = re.compile(r"(?P<before>[^(){}]*)[({](?:\?:)?(?P<items>[^(){}]*)[)}](?P<after>[^(){}]*)")
_WORD = re.compile(r"[^\W\d_]+")
_MARKED = re.compile(r"""(?:re|regex|regexp|glob):(.+)|'(.+)'|"(.+)"|<(.+)>|(.*[^+*.])\+|(.*)%""")
"""A name with the signs of a regex, a text, a placeholder or SQL."""
_SEPARATORS = frozenset("|,;")
_ARGUMENT_ROOT = re.compile(r"\$\.|call\.args\.")
_ARGUMENT_INDEX = re.compile(r"\[(?:\d*|\*|'[^']*'|\"[^\"]*\")\]|\.(?:\*|\d+)(?=\.|$)")
_NOT_IN_ARGUMENTS = frozenset("*?[]{}^\\|,;")
_META = frozenset("\\[](){}^$|")


def find_name_problem(name: str, *, is_free_text: bool = False) -> tuple[str, str] | None:
    """Return why nothing can have a name, and what to write instead; None if something can.

    `is_free_text` is for names that people give, which may have brackets and commas after a space.
    """
    return (
        find_letter_problem(name)
        or _find_permission(name)
        or (None if is_free_text else _find_sign(name))
        or (None if is_free_text and " " in name else _find_regex(name))
    )


def find_path_problem(glob: str) -> tuple[str, str] | None:
    """Report a path that is written as a regex or a URL, or with odd letters."""
    sign = EXCEPT if glob.startswith(EXCEPT) else ""
    glob = glob.removeprefix(EXCEPT)
    shown = quote_text(sign + glob)
    if (plain := glob.removeprefix("file://").strip()) != glob:
        return f"{shown} is never a path as calls name it", f"write {quote_text(sign + plain)}"
    if found := find_letter_problem(glob):
        return found
    plain = glob.removeprefix("^").removesuffix("$").replace("\\.", ".").replace(".*", "*")
    if not plain or not (glob.startswith("^") or glob.endswith("$")):
        return None
    message = f"{shown} is written as a regex, not as a path"
    return message, f"write {quote_text(sign + plain)}; a folder covers all below"


def find_command_problem(pattern: str) -> tuple[str, str] | None:
    """Report a command pattern that begins or ends as a regex does, or has odd letters."""
    if found := find_letter_problem(pattern) or _find_dash(pattern):
        return found
    plain = pattern.removeprefix("^").removesuffix("$").removesuffix(".*").strip()
    if not plain or not (pattern.startswith("^") or pattern.endswith("$")):
        return None
    message = f"{quote_text(pattern)} is written as a regex, not as a command pattern"
    return message, f"write {quote_text(plain)}; further words and options may follow"


def find_letter_problem(name: str) -> tuple[str, str] | None:
    """Report invisible and look-alike letters, and spaces around a name."""
    shown = quote_text(name)
    invisible = {c for index, c in enumerate(name) if _is_invisible(name, index)}
    if invisible:
        clean = "".join(_visible(c) if c in invisible else c for c in name).strip()
        codes = ", ".join(f"U+{ord(c):04X}" for c in sorted(invisible))
        return f"{shown} contains an invisible character ({codes})", f"write {quote_text(clean)}"
    if name != name.strip():
        return f"{shown} begins or ends with a space", f"write {quote_text(name.strip())}"
    if letter := _find_lookalike(name):
        message = f"{shown} mixes Latin letters with {unicodedata.name(letter).lower()}"
        return message, "type the name again in one alphabet"
    return None


def find_argument_problem(name: str, *, has_items: bool = False) -> tuple[str, str] | None:
    """Return why no argument, or field of one, can have a name, and what to write instead.

    `has_items`: the name reaches through lists, so an index in it is wrong.
    """
    if found := find_letter_problem(name) or _find_sign(name):
        return found
    shown = quote_text(name)
    root = _ARGUMENT_ROOT.match(name)
    plain = name[root.end() :] if root is not None else name
    if has_items or "[" in plain or "*" in plain:
        plain = _ARGUMENT_INDEX.sub("", plain)
    if plain == name and not _NOT_IN_ARGUMENTS & set(name) and all(name.split(".")):
        return None
    if _SEPARATORS & set(plain):
        items = ", ".join(item.strip() for item in re.split(r"[|,;]", plain))
        return f"{shown} is one name; it has no alternatives", f"write `[{items}]`"
    message = f"{shown} is not the name of an argument"
    if not plain or _NOT_IN_ARGUMENTS & set(plain) or not all(plain.split(".")):
        return message, "write a plain name, or a path such as `options.path`"
    return message, f"write {quote_text(plain)}"


def _is_invisible(name: str, index: int) -> bool:
    letter = name[index]
    if letter in _JOINERS:
        around = name[max(index - 1, 0) : index] + name[index + 1 : index + 2]
        return index == 0 or around.isascii()
    category = unicodedata.category(letter)
    is_odd_space = category == "Zs" and letter != " "
    return category in _INVISIBLE_CATEGORIES or letter in _BLANKS or is_odd_space


def _visible(letter: str) -> str:
    return " " if unicodedata.category(letter) == "Zs" else ""


def _find_lookalike(name: str) -> str:
    """Return a letter of another script in a word with Latin letters; empty if there is none."""
    for word in _WORD.finditer(name):
        scripts = {letter: unicodedata.name(letter, "") for letter in word[0]}
        if any(script.startswith("LATIN") for script in scripts.values()):
            for letter, script in scripts.items():
                if script.startswith(_LOOKALIKE_SCRIPTS) or letter in _LOOKALIKE_GREEK:
                    return letter
    return ""


def _find_sign(name: str) -> tuple[str, str] | None:
    """Report dashes, and signs of East Asian width, that look like those of ASCII.

    In a name in another alphabet, they are reported only if they look like a wildcard.
    """
    signs = _LOOKALIKE_SIGNS.keys() & set(name)
    if not signs or not (signs & _WILDCARD_SIGNS or _ASCII_LETTERS.fullmatch(name)):
        return None
    sign = min(signs)
    plain = "".join(_LOOKALIKE_SIGNS.get(letter, letter) for letter in name)
    message = f"{quote_text(name)} contains U+{ord(sign):04X} ({unicodedata.name(sign).lower()})"
    return f"{message}, which looks like `{_LOOKALIKE_SIGNS[sign]}`", f"write {quote_text(plain)}"


def _find_dash(pattern: str) -> tuple[str, str] | None:
    """Report an option with a dash that word processors write for `-` and `--`."""
    for word in pattern.split():
        if _LOOKALIKE_SIGNS.get(word[0]) == "-":
            message = f"{quote_text(word)} begins with a dash (U+{ord(word[0]):04X})"
            return message, f"write {quote_text('-' + word[1:])} or {quote_text('--' + word[1:])}"
    return None


def _find_permission(name: str) -> tuple[str, str] | None:
    """Recognise `tool()` and Claude Code's permissions: `Bash(rm:*)`, `Read(~/.ssh/**)`."""
    found = _PERMISSION.fullmatch(name)
    if found is None or found[2].startswith((".*", ".+", "?")):
        return None
    tool, inner = found.groups()
    help_text = f"write {quote_text(tool)}"
    text = inner.removeprefix("domain:").rstrip("*/").removesuffix(":")
    if inner.startswith((".", "/", "~", "*", "domain:")):
        if text := text.lstrip("*/"):
            help_text += f", and `when: call.targets.exists(t, t.contains({text!r}))`"
    elif text:
        help_text += f", and `when: call.command.contains({text!r})`"
    return f"{quote_text(name)} is written as a call or a permission, not as a name", help_text


def _find_regex(name: str) -> tuple[str, str] | None:
    shown = quote_text(name)
    as_regex = f"{shown} is written as a regex, not as a glob"
    if len(name) > 1 and name.startswith("/") and name.endswith("/"):
        glob = re.sub(r"\*+", "*", f"*{re.sub(r'[.][*+]', '*', name[1:-1])}*")
        return as_regex, f"write {quote_text(glob)}"
    if _SEPARATORS & set(name):
        items = [_strip_regex(one) for one in _alternatives(name)]
        message = f"{shown} is one name; a glob has no alternatives"
        if any(_META & set(item) for item in items):
            return message, "write a list of names"
        return message, f"write `[{', '.join(_yaml_text(item) for item in items)}]`"
    if found := _MARKED.fullmatch(name):
        plain = next(filter(None, found.groups()), "*")
        plain = f"{plain}*" if name.endswith("%") and plain != "*" else plain
        return f"{shown} is compared with all its signs", f"write {quote_text(plain)}"
    glob = _strip_regex(name)
    if glob == name and not _META & set(name.removeprefix("$")):
        return None
    if _META & set(glob):
        return as_regex, "write a glob: `*` stands for any text, `?` for one character"
    return as_regex, f"write {quote_text(glob)}; `*` stands for any text"


def _alternatives(name: str) -> list[str]:
    """Return the names that `a|b`, `a,b`, `x_(a|b)` or `x_{a,b}` stands for."""
    found = _GROUP.fullmatch(name)
    before, items, after = found.groups() if found is not None else ("", name, "")
    return [f"{before}{item.strip()}{after}" for item in re.split(r"[|,;]", items)]


def _strip_regex(name: str) -> str:
    """Return a regex as a glob: `^a_` as `a_*`. The dot of `fs.*` belongs to the name."""
    text = name.removeprefix("^").removesuffix("$").replace(".+", "*")
    before, found, rest = text.partition(".*")
    if found and not before[-1:].isalnum():
        text = f"{before}*{rest}"
    starts, ends = name.startswith("^"), name.endswith("$")
    if starts and not ends and not text.endswith("*"):
        return f"{text}*"
    return f"*{text}" if ends and not starts and not text.startswith("*") else text


def _yaml_text(name: str) -> str:
    return f'"{name}"' if name.startswith("*") else name
