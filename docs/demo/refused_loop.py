"""An agent reads one missing file again and again; policyguard refuses the third call.

    python docs/demo/refused_loop.py [--svg FILE]

Prints the calls and what the model gets to read; with --svg also draws them.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from rich.console import Console
from rich.text import Text

from policyguard import Guard

TOOLS = {"read_file": lambda path: Path(path).read_text()}
CALL = ("read_file", {"path": "config.yml"})


def main() -> None:
    """Run the agent; with --svg, draw what it printed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--svg", type=Path, metavar="FILE")
    svg = parser.parse_args().svg
    console = Console(record=True, width=88, highlight=False)
    session = Guard.load("core").session("run-1")
    for _ in range(3):
        tool, args = CALL
        console.print(Text(f"→ {tool}(path={args['path']!r})", "bold"))
        decision = session.check(tool, args)
        if decision.allowed:
            try:
                text = session.record(decision, result=TOOLS[tool](**args)).text
            except OSError as error:
                text = session.record(decision, error=error).text
            console.print(Text(f"  {text}", "dim"))
        else:
            console.print(Text(f"✗ {decision.message}", "red"))
    if svg is not None:
        drawn = console.export_svg(title="an agent under policyguard's defaults")
        drawn = re.sub(r"@font-face \{.*?\}\n", "", drawn, flags=re.DOTALL)  # fonts of another host
        svg.write_text("\n".join(line.rstrip() for line in drawn.splitlines()) + "\n")


if __name__ == "__main__":
    main()
