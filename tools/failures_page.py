"""The failures as pages, made from their table: ``docs/failures.md`` has all; the site has a page for each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuinstall.failures.table import load_advice, load_failures, load_lookalikes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gpuinstall.failures.table import Failure, FixTable, ProblemKind

TITLE = "# Known failures"
HEAD = f"""{TITLE}

`gpuinstall explain` recognises these failures in a text, `gpuinstall doctor` and `gpuinstall verify` on a machine,
which also fills in the words in braces. *Reported* failures were seen in the threads named, *inferred* ones concluded
from documents. Made from `src/gpuinstall/failures/data`.
"""
FOOT = """

`gpuinstall doctor` on the machine, or `gpuinstall explain` with the text, fills in the words in braces.

[All failures](../failures.md)
"""
SEEN = {"before": "before an installation", "after": "after it", "text": "in a text"}
_NAMED = re.compile(r"\bF\d{2,3}\b")


def failures_page() -> str:
    """Write the one page that has them all."""
    return _by_group(HEAD, lambda failure: "\n".join(_entry(failure, "###")) + "\n")


def failures_index() -> str:
    """Write the list that leads to the page of each, and the menu of these pages."""
    pages = "\n".join(f"failures/{failure}" for failure in load_failures())
    listed = _by_group(
        HEAD, lambda failure: f"- [{failure.id} {failure.title}](failures/{failure.id}.md)"
    )
    return f"---\nnosearch: true\n---\n{listed}\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n"


def failure_pages() -> Mapping[str, str]:
    """Return the page of each by its id; what it names of others leads to theirs."""
    pages = {}
    for failure in load_failures().values():
        lines = _linked(_entry(failure, "#"))
        pages[failure.id] = "\n".join(lines) + FOOT
    return pages


def _by_group(head: str, write: Callable[[Failure], str]) -> str:
    parts = [head]
    failures = load_failures().values()
    for group in dict.fromkeys(failure.group for failure in failures):
        parts.append(f"## {group}\n")
        parts += [write(failure) for failure in failures if failure.group == group]
    parts += ["## What only looks like a GPU problem\n"]
    parts += [f"- **{other.title}**: {other.why}" for other in load_lookalikes()]
    parts += ["\n## Common advice that does not help\n"]
    parts += [f"- *{advice.told}*: {advice.why}." for advice in load_advice().values()]
    return "\n".join(parts) + "\n"


def _entry(failure: Failure, heading: str) -> Iterator[str]:
    yield f"{heading} {failure.id} {failure.title}\n"
    yield "```text"
    yield from failure.messages
    yield "```\n"
    yield f"{failure.cause} *How to tell:* {failure.apart}\n"
    if failure.aliases:
        yield f"Also {', '.join(f'`{alias}`' for alias in failure.aliases)}, found to be the same cause.\n"
    if failure.narrows:
        yield f"One of these, likeliest first: {', '.join(failure.narrows)}.\n"
    yield from _fixes(failure.fix)
    yield from map(_problem, failure.problems)
    yield f"\nSeen {', '.join(SEEN[when] for when in failure.detected)}. {failure.level.capitalize()}, {failure.date}"
    yield f"({', '.join(map(_link, failure.sources)) or 'documents of the tools'})."


def _linked(lines: Iterator[str]) -> Iterator[str]:
    """Link each failure that is named in prose: not in the title, in messages, in commands."""
    yield next(lines)
    is_in_block = False
    for line in lines:
        if line.startswith("```"):
            is_in_block = not is_in_block
        if is_in_block:
            yield line
            continue
        parts = re.split(r"(`[^`]*`)", line)
        # Every second part is a command.
        for place in range(0, len(parts), 2):
            parts[place] = _NAMED.sub(r"[\g<0>](\g<0>.md)", parts[place])
        yield "".join(parts)


def _fixes(fix: FixTable) -> Iterator[str]:
    if fix.like:
        yield f"- as for {' and '.join(fix.like)}"
    for platform, commands in fix.commands.items():
        yield from (f"- {platform}: `{command}`" for command in commands)


def _problem(problem: ProblemKind) -> str:
    own = [f"  {line}" for line in _fixes(problem.fix)] if problem.fix else []
    return "\n".join([f"- reported as *{problem.code}*{':' if own else ''}", *own])


def _link(source: str) -> str:
    repository, _, number = source.partition("#")
    if source.startswith("https://"):
        return f"<{source}>"
    place = f"/issues/{number}" if number else ""
    return f"[{source}](https://github.com/{repository}{place})"
