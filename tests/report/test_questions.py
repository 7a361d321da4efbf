"""Calls that wait for an approval, as text: no argument is hidden by another."""

from __future__ import annotations

from policyguard.report.questions import render_arguments


def test_every_argument_is_named_and_what_is_left_out_is_said() -> None:
    args = {"path": "safe" + " " * 3000, "cmd": "rm -rf /", "\x1b[2Jname": [1, None]}
    lines = render_arguments(args)
    assert lines[0].startswith('path: "safe ')
    assert lines[0].endswith("… and 2,806 more characters")
    assert lines[1] == 'cmd: "rm -rf /"'
    assert "\x1b" not in lines[2]
    many = render_arguments({f"a{n}": n for n in range(50)})
    assert many[39:] == ["a39: 39", "… and 10 more arguments"]
    assert render_arguments({}) == ["(no arguments)"]
    assert render_arguments(None) == ["(its arguments are not kept)"]
