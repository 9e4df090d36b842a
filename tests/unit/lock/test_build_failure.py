from __future__ import annotations

import pytest

from gpuinstall.install.stage import failure
from gpuinstall.lock.uv_failure import build_failure, explain_failure

COMPILER = """  × Failed to build `fastlib==1.0`
  ├─▶ The build backend returned an error
  ╰─▶ Call to `setuptools.build_meta.build_wheel` failed (exit status: 1)

      [stdout]
      running build_ext
      building 'fastlib._c' extension
      creating build/temp.linux-x86_64

      [stderr]
      cc -O3 -c fastlib/_c.c -o build/temp/_c.o
      fastlib/_c.c:1:10: fatal error: fast.h: No such file or directory
          1 | #include <fast.h>
      compilation terminated.
      error: command 'cc' failed with exit code 1

      hint: This usually indicates a problem with the package or the build environment.
"""
INDEX = "× Failed to build `fastlib==1.0`\n╰─▶ error sending request for url (https://index.example/setuptools/)"


@pytest.mark.parametrize("explain", [failure, explain_failure, build_failure])
def test_a_build_that_fails_keeps_its_lines_with_the_cause_last(explain: object) -> None:
    assert callable(explain)
    error = explain(COMPILER)
    assert (error.code, error.exit_code) == ("build-failed", 4)
    assert "fastlib==1.0" in error.message
    lines = error.seen.splitlines()
    assert "running build_ext" in lines
    assert any("fast.h: No such file" in line for line in lines)
    assert lines[-1] == "error: command 'cc' failed with exit code 1"
    assert error.hint


def test_a_traceback_ends_with_its_error_and_keeps_no_password() -> None:
    told = "Traceback (most recent call last):\n  fetch('https://me:secret@index.example/x')\nKeyError: 'HOME'\nbye"
    error = build_failure(f"Failed to build `a @ file:///a`\nThe build backend returned an error\n{told}")
    assert error
    assert (error.seen or "").endswith("KeyError: 'HOME'")
    assert "secret" not in (error.seen or "")


def test_an_index_that_fails_in_a_build_is_no_fault_of_the_package() -> None:
    assert build_failure(INDEX) is None
    assert explain_failure(INDEX).code == "network"
