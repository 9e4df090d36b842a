"""Tests of the errors that gpuinstall raises for uv's messages."""

from typing import Any

import pytest

from gpuinstall.lock.uv.conflict import Conflict
from gpuinstall.lock.uv.errors import (
    explain_build_failure,
    explain_failure,
    explain_installation,
)

CONFLICT = """  × No solution found when resolving dependencies:
  ╰─▶ Because there is no version of triton==3.8.0 and torch==2.14.1+cu126 depends on triton==3.8.0, we can conclude
      that torch==2.14.1+cu126 cannot be used.
      And because you require torch==2.14.1+cu126, your requirements are unsatisfiable.
"""
CONFLICT_IN_A_LINE = """No solution found when resolving dependencies: Because there is no version of triton==3.8.0 and \
torch==2.14.1+cu126 depends on triton==3.8.0, we can conclude that torch==2.14.1+cu126 cannot be used. \
And because you require torch==2.14.1+cu126, your requirements are unsatisfiable."""
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
FETCH = "Failed to fetch: `http://u:p@v.example:8000/x.whl`\n  cause: "
GIT = """   Updating https://git.example/mcubes.git (HEAD)
  × Failed to download and build `mcubes @ git+https://git.example/mcubes.git`
  ├─▶ Git operation failed
  ├─▶ failed to fetch into: /tmp/uv/git-v1/db/57d0
  ╰─▶ process didn't exit successfully: `git fetch --force 'https://git.example/mcubes.git'` (exit status: 128)
      --- stderr
      fatal: unable to access 'https://git.example/mcubes.git/': Could not resolve host: git.example
"""
NEWER = """error: No solution found when resolving dependencies
  cause: Because there is no version of six==1.16 and you require six==1.16, your requirements are unsatisfiable.

hint: `six` was filtered by `exclude-newer` to only include packages uploaded before \
2019-01-02T00:00:00Z. The requested version, v1.16.0, was published at 2021-05-05T14:18:17Z. Consider using \
`exclude-newer-package` to override the cutoff for this package.
hint: Another one.
"""
NEWER_IN_A_LINE = """No solution found when resolving dependencies; Because there is no version of six==1.16 and you \
require six==1.16, your requirements are unsatisfiable. `six` was filtered by `exclude-newer` to only include \
packages uploaded before 2019-01-02T00:00:00Z. The requested version, v1.16.0, was published at \
2021-05-05T14:18:17Z."""
LONG = ". And ".join(
    f"because a{number} depends on b{number}, c" for number in range(90)
)
LOGIN = """error: No solution found
  cause: Because six was not found in the package registry and you require six

hint: An index URL (https://x/simple) could not be queried due to a lack of valid authentication credentials \
(401 Unauthorized)
"""
GONE = """error: Failed to download `x @ https://v.example/x.whl`
  cause: Failed to fetch: `https://v.example/x.whl`
  cause: HTTP status client error (403 Forbidden) for url (https://v.example/x.whl)
"""
NO_SPACE = "error: failed to write: No space left on device (os error 28)"
POWER_CUT = """error: Failed to install: alpha-2.0-py3-none-any.whl (alpha==2.0)
  Caused by: The wheel is invalid: Invalid Wheel-Version in `WHEEL` file: None
"""
DENIED = "error: failed to create directory: Permission denied (os error 13)"
DENIED_THERE = f'{DENIED} at path "/srv/a uv/.tmpzj"'


def resolving(message, unlisted=()):
    failure = explain_failure(message, unlisted)
    return failure.error if isinstance(failure, Conflict) else failure


installing = explain_installation
building: Any = explain_build_failure


@pytest.mark.parametrize(
    ("explain", "text", "code", "part"),
    [
        (resolving, CONFLICT, "requirements-conflict", "triton"),
        (resolving, LOGIN, "http-status", "https://x/simple returned HTTP status 401"),
        (resolving, LOGIN, "http-status", "user name and password"),
        # An index that fails in a build is no fault of the package.
        (resolving, INDEX, "network", "index.example cannot be reached"),
        (resolving, f"error: {FETCH}timed out", "network", "v.example:8000 cannot be"),
        (installing, f"error: {FETCH}body ended", "network", "\nbody ended\n"),
        (resolving, GIT, "repository", "git ls-remote https://git.example/mcubes.git"),
        # A URL is in no index.
        (
            resolving,
            GONE,
            "http-status",
            "https://v.example/x.whl returned HTTP status 403",
        ),
        (installing, NO_SPACE, "no-space", "UV_CACHE_DIR"),
        (installing, DENIED, "not-writable", "ls -ld .  "),
        (installing, DENIED_THERE, "not-writable", "ls -ld '/srv/a uv'   # "),
        (installing, POWER_CUT, "cache-damaged", "uv cache clean alpha   # then"),
        (installing, "error: something new", "installation-failed", "something new"),
    ],
)
def test_uv_error_has_code_and_hint(explain, text, code, part):
    error = explain(f"Using Python 3.12.1 environment at: .venv\n{text}")
    assert error.code == code
    assert error.exit_code == (3 if code == "requirements-conflict" else 4)
    assert "\n" not in error.message
    assert part in f"{error.message}\n{error.why}\n{error.hint}"


@pytest.mark.parametrize(
    "retried", ["error sending request for url (https://x/)", "operation timed out"]
)
def test_retried_request_does_not_hide_conflict(retried):
    error = resolving(f"Transient failure: {retried}\n{CONFLICT}")
    assert (error.code, error.why) == ("requirements-conflict", CONFLICT_IN_A_LINE)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (CONFLICT, CONFLICT_IN_A_LINE),
        (NEWER, NEWER_IN_A_LINE),
        (
            GIT,
            "fatal: unable to access 'https://git.example/mcubes.git/': Could not resolve host: git.example",
        ),
        # Earlier lines are not the cause.
        ("Downloaded torch\nerror: the sky is falling", "the sky is falling"),
    ],
)
def test_uv_error_reason_is_one_line(message, why):
    assert resolving(message).why == why


def test_long_uv_error_keeps_its_end():
    why = resolving(f"No solution found: {LONG}. And because you require a, no").why
    assert why.startswith("… because a")
    assert why.endswith("because you require a, no")
    assert len(why) < 1300


def test_pytorch_package_missing_from_index_has_hint():
    said = CONFLICT.replace(
        "there is no version of triton==3.8.0", "there are no versions of torchtriton"
    )
    error = resolving(said, {"torchtriton", "torchdata"})
    assert (error.code, error.exit_code) == ("family-unlisted", 4)
    assert "torchtriton" in str(error.hint)
    assert resolving(said, {"torchdata"}).code == "requirements-conflict"


@pytest.mark.parametrize("explain", [installing, resolving, building])
def test_failed_build_error_ends_with_cause(explain):
    error = explain(COMPILER)
    assert (error.code, error.exit_code) == ("build-failed", 4)
    assert "fastlib==1.0" in error.message
    # They cannot be confused with lines of gpuinstall.
    lines = [line.removeprefix("| ") for line in error.evidence.splitlines()]
    assert error.evidence.splitlines() == [f"| {line}" for line in lines]
    assert "running build_ext" in lines
    assert any("fast.h: No such file" in line for line in lines)
    assert lines[-1] == "error: command 'cc' failed with exit code 1"
    assert error.hint == "Install the build tools of fastlib"


@pytest.mark.parametrize("package", ["a==1", "a @ file:///a"])
def test_failed_build_code_has_no_hint_about_tools(package):
    told = "FileNotFoundError: [Errno 2] No such file or directory: 'requirements.txt'"
    error = building(
        f"Failed to build `{package}`\nThe build backend returned an error\n{told}"
    )
    copy = "Copy all files of a to this machine" if "file:" in package else None
    assert error.hint == copy


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("ModuleNotFoundError: No module named 'torch.utils'", "No module named"),
        ("wheel_stub.error.InstallFailedError:", "downloads a wheel from NVIDIA"),
    ],
)
def test_failed_build_does_not_blame_environment(output, why):
    error = building(
        f"Failed to build `a==1`\nThe build backend returned an error\n{output}"
    )
    assert why in error.why
    assert "doctor" not in (error.hint or "")
    assert "build tools" not in (error.hint or "")


def test_traceback_ends_with_error_without_password():
    told = "Traceback (most recent call last):\n  fetch('https://me:secret@index.example/x')\nKeyError: 'HOME'\nbye"
    error = building(
        f"Failed to build `a @ file:///a`\nThe build backend returned an error\n{told}"
    )
    assert error.hint is None
    assert error.evidence.endswith("KeyError: 'HOME'")
    assert "secret" not in error.evidence


def test_uv_error_omits_quoted_file_lines():
    message = (
        "error: Failed to parse metadata from built wheel\n"
        "  cause: Invalid `pyproject.toml`\n"
        "  cause: TOML parse error at line 1, column 9\n"
        "           |\n         1 | private hunter2\n           |         ^\n"
        "         key with no value, expected `=`\n"
    )
    for failure in (explain_failure(message, ()), explain_installation(message)):
        why = getattr(failure, "why", None)
        assert why == (
            "Failed to parse metadata from built wheel; Invalid `pyproject.toml`; "
            "TOML parse error at line 1, column 9 key with no value, expected `=`"
        )
