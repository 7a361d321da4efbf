"""Hooks of coding agents: one module per host, listed in `hosts`.

`command` is the program that a host starts; it hands the event to the service, whose process
answers it, or answers it alone (`one_shot`) where no service can run.
"""
