"""Print the summary of a CI job in Markdown from a ``--json`` document.

``python3 tools/ci_summary.py result.json`` needs only the standard library.
"""

import json
import re
import sys
from collections.abc import Iterator
from typing import Any


def format_summary(document: dict[str, Any]) -> str:
    """Return the Markdown summary of one JSON document."""
    lines = [
        f"### gpuinstall {document['command']}: {document['status']}",
        "",
        "| | |",
        "|---|---|",
    ]
    for label, text in _rows(document.get("data") or {}):
        lines.append(f"| {label} | {_cell(text)} |")
    for error in document["errors"]:
        lines += ["", f"**{_cell(error['message'])}** (`{error['code']}`)", ""]
        hint = error.get("hint") or ""
        for line in hint.splitlines():
            lines.append(f"    {_visible(line)}")
    return "\n".join(lines) + "\n"


def _rows(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    plan = data.get("plan") or {}
    environment = data.get("environment") or {}
    verdict = data.get("verdict") or {}
    devices: list[dict[str, Any]] = verdict.get("devices") or []
    if devices:
        yield "Machine", ", ".join(device["name"] for device in devices)
    if environment.get("torch"):
        yield "Build", f"torch {environment['torch']}, Python {environment['python']}"
    elif plan.get("build"):
        yield "Build", f"torch {plan['build']['torch']}+{plan['build']['backend']}"
    if verdict:
        passed = 0
        for device in devices:
            passed += sum(check["status"] == "passed" for check in device["checks"])
        yield (
            "Verdict",
            f"{verdict['status']}, {passed} checks on {len(devices)} devices",
        )
    for lock in data.get("locks") or [data.get("lock") or {}]:
        if lock.get("path"):
            yield "Lock", f"{lock['path']} ({lock['status']})"
    if "bytes" in data:
        megabytes = data["bytes"] / 1e6
        seconds = data.get("seconds", 0)
        yield "Downloaded", f"{megabytes:,.0f} MB in {seconds:.0f} s"


def _cell(text: str) -> str:
    """Escape untrusted text for a table cell."""
    escaped = re.sub(r"[\\|`*_\[\]<>&~$]", r"\\\g<0>", text)
    return _visible(" ".join(escaped.split()))


def _visible(text: str) -> str:
    """Escape control characters, also line breaks and bidirectional marks."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode()
        for sign in text
    )


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as result:  # noqa: PTH123  as short as it is
        sys.stdout.write(format_summary(json.load(result)))
