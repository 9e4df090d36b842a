"""``gpuinstall lock --audit``: uv asks a service of advisories, here one on loopback, about what the locks hold."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from tests.lab.workshop import Workshop
from tests.unit.export.locks import cpu_lock, cuda_lock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ADVISORY = {
    "id": "GHSA-0000",
    "summary": "reads what it is not given",
    "modified": "2026-01-01T00:00:00Z",
    "published": "2026-01-01T00:00:00Z",
    "affected": [
        {
            "package": {"name": "numpy", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.4"}]}],
        }
    ],
}
ASKED: list[dict[str, Any]] = []


class Advisories(BaseHTTPRequestHandler):
    """A service that knows of one vulnerability, in NumPy."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))["queries"]
        ASKED.extend(asked)
        known = {"vulns": [{"id": ADVISORY["id"], "modified": ADVISORY["modified"]}]}
        self._reply(
            {"results": [known if query["package"]["name"] == "numpy" else {} for query in asked]}
        )

    def do_GET(self) -> None:
        self._reply(ADVISORY)

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _reply(self, document: dict[str, Any]) -> None:
        content = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def service() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Advisories) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_what_is_known_of_locked_versions_is_named_by_lock(service: str, tmp_path: Path) -> None:
    for lock in (cuda_lock(), cpu_lock()):
        (tmp_path / lock.name).write_text(lock.text, encoding="utf-8")
    # uv asks the index of the locks too, which no name server knows.
    variables = {"GPUINSTALL_ADVISORY_SERVICE": service, "UV_HTTP_RETRIES": "0"}
    workshop = Workshop(tmp_path, tmp_path / "caches", variables)
    document = workshop.document("lock", "audit", exit_code=6)
    [row] = document["data"]["vulnerabilities"]
    assert (row["lock"], row["dependency"]["name"], row["fix_versions"]) == (
        "pylock.cu126.toml",
        "numpy",
        ["2.4"],
    )
    assert {(query["package"]["name"], query["version"]) for query in ASKED} >= {
        ("torch", "2.14.1")
    }, "without +cu126"
    (tmp_path / cuda_lock().name).unlink()
    assert "1 lock, no known vulnerabilities" in workshop.run("lock", "audit").out


def test_where_no_service_is_reachable_it_says_what_uv_says(tmp_path: Path) -> None:
    (tmp_path / cpu_lock().name).write_text(cpu_lock().text, encoding="utf-8")
    nowhere = {"GPUINSTALL_ADVISORY_SERVICE": "http://127.0.0.1:9/", "UV_HTTP_RETRIES": "0"}
    done = Workshop(tmp_path, tmp_path / "caches", nowhere).run("lock", "audit")
    assert done.status == 4
    assert "error: uv could not audit pylock.cpu.toml" in done.err
    assert "error sending request" in done.err
