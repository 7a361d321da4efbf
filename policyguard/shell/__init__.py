"""Shell command lines: what they run, which patterns match them, when two are alike.

`ShellReader.read` turns a text into a `CommandLine`; `CommandPatterns` matches it; `normal_form`
and `only_looks` serve likeness. What programs do with their arguments is data: `ShellFacts`.
"""

from policyguard.shell.command_line import CommandLine, Redirect, SimpleCommand
from policyguard.shell.facts import CodeRunner, Limits, Program, ShellFacts, Wrapper
from policyguard.shell.looking import only_looks
from policyguard.shell.normal_form import normal_form
from policyguard.shell.pattern import CommandPattern, PatternError
from policyguard.shell.pattern_set import CommandPatterns
from policyguard.shell.reader import ShellReader

__all__ = [
    "CodeRunner",
    "CommandLine",
    "CommandPattern",
    "CommandPatterns",
    "Limits",
    "PatternError",
    "Program",
    "Redirect",
    "ShellFacts",
    "ShellReader",
    "SimpleCommand",
    "Wrapper",
    "normal_form",
    "only_looks",
]
