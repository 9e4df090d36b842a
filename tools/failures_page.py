"""The page of every failure, ``docs/failures.md``, made from the table of failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.failures.table import load_advice, load_failures, load_lookalikes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.failures.table import Failure, FixTable, ProblemKind

HEAD = """# Every failure that gpuinstall knows

`gpuinstall explain` recognises them in a text, `gpuinstall doctor` and `gpuinstall verify` on the machine itself.
Made from `src/gpuinstall/failures/data`; level *reported* means seen in the threads named, *inferred* concluded from
documents. Words in braces are filled in where the machine is known.
"""
SEEN = {"before": "before an installation", "after": "after it", "text": "in a text"}


def failures_page() -> str:
    """Write the page."""
    parts = [HEAD]
    failures = load_failures().values()
    for group in dict.fromkeys(failure.group for failure in failures):
        parts += [f"## {group}\n"]
        parts += ["\n".join(_entry(failure)) + "\n" for failure in failures if failure.group == group]
    parts += ["## What only looks like a fault of the GPU's stack\n"]
    parts += [f"- **{other.title}**: {other.why}" for other in load_lookalikes()]
    parts += ["\n## Advice that is often given and does not help\n"]
    parts += [f"- *{advice.told}*: {advice.why}." for advice in load_advice().values()]
    return "\n".join(parts) + "\n"


def _entry(failure: Failure) -> Iterator[str]:
    yield f"### {failure.id} {failure.title}\n"
    yield "```text"
    yield from failure.messages
    yield "```\n"
    yield f"{failure.cause} *Told apart:* {failure.apart}\n"
    yield from _fixes(failure.fix)
    yield from map(_problem, failure.problems)
    yield f"\nSeen {', '.join(SEEN[when] for when in failure.detected)}. {failure.level.capitalize()}, {failure.date}"
    yield f"({', '.join(map(_link, failure.sources)) or 'documents of the tools'})."


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
