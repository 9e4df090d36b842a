"""Every rule has its place in the order by which the build that came closest is found."""

import re
from pathlib import Path

import gpuinstall.plan
from gpuinstall.plan import candidates

FOLDER = Path(gpuinstall.plan.__file__).parent
RULES = ("rules.py", "companions.py", "context.py")


def test_the_code_of_every_rule_has_a_stage():
    text = "".join((FOLDER / name).read_text("utf-8") for name in RULES)
    codes = set(re.findall(r'Reason\(\s*"([a-z-]+)"', text))

    assert "other-torch" in codes
    assert codes <= set(candidates._STAGES)
