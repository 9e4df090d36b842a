"""The summary of a CI job, in Markdown: the machine, the build and its proof, from the document of ``--json``.

``python3 tools/ci_summary.py result.json`` prints it; standard library alone, for the Python that a runner has.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any


def summary(document: dict[str, Any]) -> str:
    """Write the summary of one document."""
    lines = [
        f"### gpuinstall {document['command']}: {document['status']}",
        "",
        "| | |",
        "|---|---|",
    ]
    lines += [f"| {label} | {_cell(text)} |" for label, text in _rows(document.get("data") or {})]
    for error in document["errors"]:
        lines += ["", f"**{_cell(error['message'])}** (`{error['code']}`)"]
        lines += ["", *(f"    {_visible(line)}" for line in (error.get("hint") or "").splitlines())]
    return "\n".join(lines) + "\n"


def _rows(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    plan, environment, verdict = (data.get(key) or {} for key in ("plan", "environment", "verdict"))
    devices: list[dict[str, Any]] = verdict.get("devices") or []
    if devices:
        yield "Machine", ", ".join(device["name"] for device in devices)
    if environment.get("torch"):
        yield "Build", f"torch {environment['torch']}, Python {environment['python']}"
    elif plan.get("build"):
        yield "Build", f"torch {plan['build']['torch']}+{plan['build']['backend']}"
    if verdict:
        checks = sum(
            check["status"] == "passed" for device in devices for check in device["checks"]
        )
        yield "Proof", f"{verdict['status']}, {checks} checks on {len(devices)} devices"
    for lock in data.get("locks") or [data.get("lock") or {}]:
        if lock.get("path"):
            yield "Lock", f"{lock['path']} ({lock['status']})"
    if "bytes" in data:
        yield "Downloaded", f"{data['bytes'] / 1e6:,.0f} MB in {data.get('seconds', 0):.0f} s"


def _cell(text: str) -> str:
    """Keep a text in its cell: what a machine or a package is called is not ours."""
    escaped = "".join(f"\\{sign}" if sign in "\\|`*_[]<>&~$" else sign for sign in text)
    return _visible(" ".join(escaped.split()))


def _visible(text: str) -> str:
    """Write out what turns a text around, or begins a line: in a block of code nothing else has a meaning."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text
    )


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as result:  # noqa: PTH123  as short as it is
        sys.stdout.write(summary(json.load(result)))
