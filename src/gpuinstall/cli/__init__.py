"""Command line: parse the options, run a command, print its outcome.

Only this package prints. Each command has a module, and its options are rows of
``options.py``. It returns an ``Outcome``: a JSON document, and rows for people.
"""
