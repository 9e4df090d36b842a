"""Runs ``gpuinstall``, and says on standard error what it read of wheels by range, whichever commit it is of."""

from __future__ import annotations

import sys
from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from requests.adapters import HTTPAdapter

from gpuinstall.cli.main import run_command_line

if TYPE_CHECKING:
    from requests import PreparedRequest, Response

PARTIAL = 206
"""The status of an answer that is a part of a file."""
TITLE = "Read of wheels: "


def main() -> None:
    """Run a command line, and write what it read as the last line."""
    lengths: dict[str, int] = Counter()
    seconds: list[float] = []
    send = HTTPAdapter.send

    def counted(adapter: HTTPAdapter, request: PreparedRequest, **options: Any) -> Response:
        started = monotonic()
        response = send(adapter, request, **options)
        if response.status_code == PARTIAL:
            lengths[str(request.url)] += int(response.headers["Content-Length"])
            close = response.close

            def close_and_count() -> None:
                seconds.append(monotonic() - started)
                close()

            # What is read of an answer ends when it is closed.
            response.close = close_and_count  # type: ignore[method-assign]
        return response

    with patch.object(HTTPAdapter, "send", counted):
        status = run_command_line(sys.argv[1:])
    megabytes = sum(lengths.values()) / 1e6
    print(  # noqa: T201
        f"{TITLE}{len(lengths)} wheels, {megabytes:.1f} MB in {len(seconds)} requests, {sum(seconds):.0f} s",
        file=sys.stderr,
    )
    sys.exit(status)


if __name__ == "__main__":
    main()
