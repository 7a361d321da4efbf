"""`policyguard`, and `python -m policyguard`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback while it is still being loaded."""
    try:
        from policyguard.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("policyguard: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
