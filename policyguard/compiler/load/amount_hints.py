"""Hints on how to write a duration or number that is written in another way."""

from __future__ import annotations

import re

_AMOUNT = re.compile(r"([0-9]{1,9})\s*([A-Za-z]+)")
_DECIMAL = re.compile(r"([0-9]{1,6})\.([0-9]{1,3})\s*([A-Za-z]+)")
_CLOCK = re.compile(r"([0-9]{1,6})\s*h(?:ours?)?\s*([0-9]{1,2})\s*m(?:in)?")
_DOTTED_DATE = re.compile(r"(0?[1-9]|[12][0-9]|3[01])\.(0?[1-9]|1[0-2])\.([0-9]{4})")
_SHARE = re.compile(r"([0-9]{1,3})\s*%")
_MONEY = re.compile(r"[$€£]|USD|EUR|[Dd]ollar|[Ee]uro")
_REFERENCE = re.compile(r"(?:\$\{|\{\{\s*|params\.)(?:params\.)?([A-Za-z_]\w*)\s*\}{0,2}")
_UNITS = {
    **dict.fromkeys(("ms", "msec", "millis", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
}
_SMALLER = {"s": ("ms", 1000), "m": ("s", 60), "h": ("m", 60), "d": ("h", 24), "w": ("h", 168)}
_WEEKS = ("w", "week", "weeks", "wk")
_NUMBER = re.compile(
    r"(?:[$€£]|USD|EUR)?\s*([0-9]{1,12}(?:[,_][0-9]{3})*(?:\.[0-9]{1,9})?)\s*"
    r"([kK]|M|m(?=\s*tokens))?\s*(?:[$€£]|USD|EUR|[Dd]ollars?|[Ee]uros?|calls?|tokens?|times)?"
)


def explain_duration(text: str) -> str | None:
    """Return what to write for `10 min`, `1.5h`, `1h30m` or `2 weeks`."""
    text = text.strip().casefold()
    if (found := _CLOCK.fullmatch(text)) is not None:
        return f"write `{int(found[1]) * 60 + int(found[2])}m`"
    if (found := _AMOUNT.fullmatch(text)) is not None:
        if found[2] in _WEEKS:
            return f"write `{int(found[1]) * 7}d`"
        unit = _UNITS.get(found[2])
        written = f"{int(found[1])}{unit}"
        return f"write `{written}`" if unit and written != text else None
    if (found := _DECIMAL.fullmatch(text)) is not None:
        unit = "w" if found[3] in _WEEKS else _UNITS.get(found[3], "")
        smaller, factor = _SMALLER.get(unit, ("", 0))
        whole, rest = divmod(int(found[1] + found[2]) * factor, 10 ** len(found[2]))
        return f"write `{whole}{smaller}`" if whole and not rest else None
    return None


def explain_number(text: str) -> str | None:
    """Return what to write for `$5`, `5 USD`, `500,000`, `2m tokens` or `80%`."""
    if (share := _SHARE.fullmatch(text)) is not None:
        return f"write an amount; where the key takes a share, `{int(share[1]) / 100:g}`"
    found = _NUMBER.fullmatch(text.strip())
    if found is None:
        return None
    digits = found[1].replace(",", "").replace("_", "")
    unit = (found[2] or "").replace("m", "M").replace("K", "k")
    if unit and not digits.isdecimal():
        whole, _, decimals = digits.partition(".")
        if len(decimals) > 3:
            return None
        digits, unit = f"{whole}{decimals:0<3}".lstrip("0") or "0", "k" if unit == "M" else ""
    return f"write `{digits}{unit}`"


def explain_cost(text: str) -> str | None:
    """Return the number in an amount of money: 5 for `$5`."""
    found = _NUMBER.fullmatch(text.strip()) if _MONEY.search(text) else None
    return found[1].replace(",", "").replace("_", "") if found is not None else None


def explain_reference(text: str) -> str | None:
    """Return what to write for `${name}`, `{{ name }}` or `params.name`."""
    found = _REFERENCE.fullmatch(text.strip())
    return f"write `${found[1]}` for the param" if found is not None else None


def explain_date(text: str) -> str | None:
    """Return a date written as day, month and year in the order of ISO 8601."""
    found = _DOTTED_DATE.fullmatch(text.strip())
    if found is None:
        return None
    day, month, year = found.groups()
    return f"write `{year}-{month:0>2}-{day:0>2}`"
