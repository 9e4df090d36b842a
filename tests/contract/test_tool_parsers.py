"""What ``export needs --for`` writes, read by each tool's own parser; runpod has none for its second API, Slurm none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpuinstall import process
from gpuinstall.catalog import load_catalog
from gpuinstall.export.needs import machine_needs
from gpuinstall.export.tools import MACHINE_TOOLS, words_for
from gpuinstall.uv import uv
from tests.unit.export.locks import cuda_lock

if TYPE_CHECKING:
    from pathlib import Path

VAST = """
import re, sys
from vastai.api.query import offers_alias, offers_fields, offers_mult, parse_query
for search in re.findall("'(.*)'", open(sys.argv[1]).read()):
    print(parse_query(search, {}, offers_fields, offers_alias, offers_mult))
"""
SKYPILOT = """
import sys, sky, yaml
from sky.utils import common_utils, schemas
document = yaml.safe_load(open(sys.argv[1]))
common_utils.validate_schema(document, schemas.get_task_schema(), "")
print(sky.Task.from_yaml_config({**document, "run": "true"}).resources)
"""
DSTACK = """
import sys, yaml
from dstack._internal.core.models.configurations import parse_apply_configuration
document = {"type": "task", "commands": ["true"], **yaml.safe_load(open(sys.argv[1]))}
resources = parse_apply_configuration(document).resources
print(resources.cpu.arch.value, resources.gpu.vendor.value, resources.gpu.name)
"""
MODAL = """
import sys
from modal._utils.function_utils import parse_gpu_config
scope = {}
exec(open(sys.argv[1]).read(), scope)
print([parse_gpu_config(name).gpu_type for name in scope["GPU"]])
"""
HTCONDOR = """
import sys, classad2, htcondor2
submit = htcondor2.Submit(open(sys.argv[1]).read())
expression = classad2.ExprTree(submit["require_gpus"])
for capability, version in ((7.0, 13000), (7.0, 13010), (8.6, 13040), (8.6, 11080), (3.7, 12000)):
    gpu = classad2.ClassAd({"Capability": capability, "MaxSupportedVersion": version})
    print(expression.eval(gpu), end=" ")
classad2.ExprTree(submit["requirements"])
"""


@pytest.mark.network
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("tool", "package", "program", "shown"),
    [
        ("vast", "vastai==1.9.1", VAST, "'driver_version': {'gte': 525060013, 'lt': 590000000}"),
        ("skypilot", "skypilot==0.14.1", SKYPILOT, "A100-80GB"),
        ("dstack", "dstack==0.22.5", DSTACK, "x86 nvidia ['A10', "),
        ("modal", "modal==1.6.4", MODAL, "['T4', 'L4', 'A10', 'L40S', 'A100-40GB'"),
        ("htcondor", "htcondor==25.14.1", HTCONDOR, "True False True False False"),
    ],
)
def test_the_tools_own_parser_reads_its_words(
    tool: str, package: str, program: str, shown: str, tmp_path: Path
) -> None:
    (needs,) = machine_needs([cuda_lock("cu126")], load_catalog())
    row = next(row for row in MACHINE_TOOLS if row.name == tool)
    file = tmp_path / "words"
    file.write_text(words_for(row, needs, {}), encoding="utf-8")
    run: list[str | Path] = [
        uv(),
        "run",
        "--no-project",
        "--isolated",
        "--python",
        "3.11",
        "--with",
        package,
    ]

    done = process.run([*run, "python", "-c", program, file], seconds=600)

    assert done.ok, done.out + done.err
    assert shown in done.out
