"""Lines that are printed for a shell: whatever a name holds, it is one word of them."""

import os
import subprocess

import pytest

from gpuinstall.base.shell import quoted
from tests.hostile.shells import HERE, NAMES, SHELLS, printed, tried

pytestmark = pytest.mark.skipif(os.name == "nt", reason="shells as Unix has them")


@pytest.mark.parametrize("program", HERE)
def test_no_name_is_run(program, tmp_path):
    faults = [
        fault
        for at, name in enumerate(NAMES)
        for shell in (SHELLS[program], None)
        for number, (_, line) in enumerate(printed(name, shell))
        if (fault := tried(line, program, tmp_path / f"{at}-{shell}-{number}", os.environ))
    ]

    assert faults == []


@pytest.mark.parametrize("program", HERE)
def test_a_name_is_one_word_and_comes_as_it_is(program):
    for name in filter(str.isprintable, NAMES):
        done = subprocess.run(
            [program, "-c", f"printf '%s_' {quoted(name, SHELLS[program])}"],
            capture_output=True,
            check=False,
        )
        assert done.stdout == os.fsencode(name) + b"_"


def test_powershell_ends_a_text_at_the_quotation_marks_of_typesetters_too():
    assert quoted("a’; calc; ‘", "powershell") == "'a’’; calc; ‘‘'"
    assert quoted("C:\\a&b", "cmd") == '"C:\\a&b"'
