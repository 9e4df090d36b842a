"""The command line: parse, call, render. The only room that prints."""
