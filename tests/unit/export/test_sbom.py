from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from gpuinstall import process
from gpuinstall.export.formats import sbom
from gpuinstall.uv import uv
from tests.unit.export.locks import FAMILY, cuda_lock, source

if TYPE_CHECKING:
    from pathlib import Path

LOCK = cuda_lock("cu126", source("flash-attn", "2.9"))
VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
sys.exit(JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read()) and "malformed")
"""


def test_each_package_is_a_component_with_its_files_and_their_hashes() -> None:
    components = {row["name"]: row for row in json.loads(sbom(LOCK, FAMILY))["components"]}
    assert components.keys() == LOCK.names
    assert components["torch"]["purl"] == "pkg:pypi/torch@2.14.1%2Bcu126"
    [file] = components["flash-attn"]["externalReferences"]
    assert file["url"].endswith("flash-attn-2.9.tar.gz")
    assert len(file["hashes"][0]["content"]) == 64


@pytest.mark.network
@pytest.mark.heavy
def test_the_schema_of_cyclonedx_accepts_it(tmp_path: Path) -> None:
    written = tmp_path / "bom.json"
    written.write_text(sbom(LOCK, FAMILY), encoding="utf-8")
    library = "cyclonedx-python-lib[json-validation]==11.12.0"
    words: list[str | Path] = [
        uv(),
        "run",
        "--no-project",
        "--isolated",
        "--with",
        library,
        "python",
        "-c",
        VALIDATE,
    ]
    done = process.run([*words, written], seconds=300)
    assert done.ok, done.out + done.err
