"""Characters that a reader does not see, or takes for others: named in place of what they hide.

Hidden are formats (zero width, writing directions, tags), controls, unassigned and private ones,
and variation selectors. Look-alikes are letters of another script within a Latin word, and letters
that are another form of a Latin one (full width, mathematical).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_HIDDEN_CATEGORIES = frozenset({"Cf", "Cc", "Co", "Cn", "Cs", "Zl", "Zp"})
_PLAIN_CONTROLS = frozenset("\n\r\t")
_BLANK_LETTERS = frozenset("\u115f\u1160\u3164\uffa0\u2800")
"""Fillers of Hangul and the empty pattern of Braille: letters and symbols that show nothing."""
_MIXED_WITH_LATIN = frozenset(
    {"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "GEORGIAN", "LISU"}
)
"""Scripts some of whose letters look like Latin ones."""
_OF_EMOJI = frozenset("\ufe0e\ufe0f\u200d")
"""What joins emoji, or says how a symbol is drawn: ordinary after a symbol."""
_LETTERS = re.compile(r"[^\W_]+")
_LOOK_ALIKES = (
    "аa вb сc ԁd еe ғf һh іi јj кk ӏl мm оo рp ԛq гr ѕs тt ѵv ԝw хx уy нh пn ьb "
    "Аa Вb Сc Еe Нh Іi Јj Кk Мm Оo Рp Ѕs Тt Хx Уy Ԛq Ԝw "
    "αa ιi κk νv οo ρp τt υu χx γy ηn Αa Βb Εe Ζz Ηh Ιi Κk Μm Νn Οo Ρp Τt Υy Χx "
    "աw օo սu հh ոn ցg"
)
_LOOKS_LATIN = str.maketrans({pair[0]: pair[1] for pair in _LOOK_ALIKES.split()})
"""Letters of other scripts as the Latin letters, in lower case, that they look like."""


def is_hidden(character: str) -> bool:
    """Whether a character shows nothing of itself."""
    if character.isascii():
        return character not in _PLAIN_CONTROLS and not character.isprintable()
    return (
        unicodedata.category(character) in _HIDDEN_CATEGORIES
        or character in _BLANK_LETTERS
        or "VARIATION SELECTOR" in unicodedata.name(character, "")
    )


def mark_odd_characters(text: str) -> str:
    """Return a text in which hidden characters and look-alikes are named: `⟨U+200B …⟩`.

    Runs of hidden characters are named by the first and their number.
    """
    if text.isascii() and (text.isprintable() or not any(map(is_hidden, text))):
        return text
    odd = {at for at, _ in _iter_look_alikes(text)}
    hidden = _find_hidden(text)
    shown: list[str] = []
    at = 0
    while at < len(text):
        character = text[at]
        end = at + 1
        if at in hidden:
            while end in hidden:
                end += 1
            more = f" and {end - at - 1} more hidden" if end - at > 1 else ""
            shown.append(f"⟨{_name(character)}{more}⟩")
        elif at in odd:
            shown.append(f"{character}⟨{_name(character)}⟩")
        else:
            shown.append(character)
        at = end
    return "".join(shown)


def describe_odd_characters(text: str, *, is_name: bool = False) -> list[str]:
    """Return what is odd in a text, in words, each once. In a name any other than ASCII is odd."""
    if text.isascii() and text.isprintable():
        return []
    found: dict[str, None] = {}
    hidden = _find_hidden(text)
    for at, character in enumerate(text):
        if at in hidden:
            found[f"hidden character {_name(character)}"] = None
        elif is_name and not character.isascii():
            found[f"character {_name(character)}"] = None
    if not is_name:
        for _, word in _iter_look_alikes(text):
            found[f"letters that look like others in `{mark_odd_characters(word)}`"] = None
    return [*found]


def _find_hidden(text: str) -> set[int]:
    """Return where hidden characters are, but for those that belong to an emoji."""
    return {
        at
        for at, character in enumerate(text)
        if is_hidden(character)
        and not (
            character in _OF_EMOJI and at and unicodedata.category(text[at - 1])[0] in ("S", "M")
        )
    }


def skeleton(name: str) -> str:
    """Return what a name looks like: equal for names that a reader may confuse."""
    visible = "".join(character for character in name if not is_hidden(character))
    decomposed = unicodedata.normalize("NFKD", visible)
    bare = "".join(character for character in decomposed if not unicodedata.combining(character))
    plain = bare.translate(_LOOKS_LATIN).casefold().translate(_LOOKS_LATIN)
    return re.sub(r"[\W_]+", "_", plain).translate(str.maketrans("01", "ol"))


def _iter_look_alikes(text: str) -> Iterator[tuple[int, str]]:
    """Yield where a letter in a word looks like one of another script, and the word."""
    for match in _LETTERS.finditer(text):
        word = match.group()
        if word.isascii():
            continue
        scripts = [unicodedata.name(character, "").partition(" ")[0] for character in word]
        is_mixed = "LATIN" in scripts and not _MIXED_WITH_LATIN.isdisjoint(scripts)
        for index, character in enumerate(word):
            if character.isascii():
                continue
            form = unicodedata.normalize("NFKC", character)
            is_form = form != character and form.isascii()
            if is_form or (is_mixed and scripts[index] in _MIXED_WITH_LATIN):
                yield match.start() + index, word


def _name(character: str) -> str:
    name = unicodedata.name(character, "")
    return f"U+{ord(character):04X} {name}".rstrip()
