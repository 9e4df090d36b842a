"""The rows that a learned release is printed as are rows that the loader reads."""

from __future__ import annotations

from dataclasses import replace

import tomli
from tools.learn_release import written

from gpuinstall.catalog.loader import parse_code
from tests.unit.learned.test_store import ROW


def test_a_release_is_printed_as_builds_toml_has_it() -> None:
    arm = replace(ROW, platform="linux-aarch64", architectures=("sm_110",))
    cpu = replace(ROW, backend="cpu", architectures=(), cuda=None)

    lines = written([ROW, arm, cpu]).splitlines()
    (row,) = tomli.loads(f"builds = [\n{lines[0]}\n]")["builds"]
    evidence = tomli.loads(lines[1])

    assert (row["torch"], row["tag"], row["toolkit"], row["cudnn"]) == ("2.16.0", "cu140", "14.0", "9.30.1.2")
    assert parse_code(row["linux_x86_64"][0]) == ROW.architectures
    assert row["linux_aarch64"] == ["110", "high", "LEARNED-2026-11-20"]
    assert set(evidence) == {"LEARNED-2026-11-20"}
