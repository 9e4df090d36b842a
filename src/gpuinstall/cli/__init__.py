"""Command line: parse the options, run a command, and print its outcome.

Only this package prints. Each command has a module, and its options are rows in
``options.py``. A command returns an ``Outcome`` with JSON data and text.
"""
