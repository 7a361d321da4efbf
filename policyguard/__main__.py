"""`python -m policyguard`."""

from policyguard.cli import main

main()
