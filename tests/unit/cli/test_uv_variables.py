import re

from gpuinstall.base import process
from gpuinstall.base.uv import uv
from gpuinstall.cli.hook import UV_TAGS


def test_torch_backends_match_uv():
    refused = process.run(
        [uv(), "pip", "install", "--torch-backend", "none-such", "torch"]
    ).err
    known = set(
        re.findall(r"\b(?:cpu|cu\d+)\b", refused.partition("possible values")[2])
    )
    assert known == UV_TAGS
