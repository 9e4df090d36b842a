"""The command line: parse, call, render. The only room that prints.

A command is a file; its options are rows of ``options.py``, its answer is an ``Outcome``: a document and rows.
"""
