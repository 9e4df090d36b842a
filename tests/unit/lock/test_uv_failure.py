import pytest

from gpuinstall.base.errors import InstallationError
from gpuinstall.lock.uv.errors import (
    Conflict,
    build_failure,
    explain_failure,
    explain_installation,
)

CONFLICT = """  × No solution found when resolving dependencies:
  ╰─▶ Because there is no version of triton==3.8.0 and torch==2.14.1+cu126 depends on triton==3.8.0, we can conclude
      that torch==2.14.1+cu126 cannot be used.
      And because you require torch==2.14.1+cu126, your requirements are unsatisfiable.
"""
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


def failed(message):
    error = explain_failure(message)
    assert isinstance(error, InstallationError)
    return error


def conflict(message, unlisted=()):
    found = explain_failure(message, unlisted)
    assert isinstance(found, Conflict)
    return found.error


def test_a_setting_that_hides_the_version_is_named():
    why = conflict(NEWER).why
    assert why
    assert why.endswith(
        "unsatisfiable. `six` was filtered by `exclude-newer` to only include packages uploaded before "
        "2019-01-02T00:00:00Z. The requested version, v1.16.0, was published at 2021-05-05T14:18:17Z."
    )


def test_one_of_pytorchs_packages_that_no_source_has_is_named_with_the_way_to_ask_for_it():
    said = CONFLICT.replace(
        "there is no version of triton==3.8.0", "there are no versions of torchtriton"
    )
    error = conflict(said, {"torchtriton", "torchdata"})
    assert (error.code, error.exit_code) == ("family-unlisted", 4)
    assert (error.hint or "").startswith("Request torchtriton too:")
    assert conflict(said, {"torchdata"}).code == "requirements-conflict"


def test_a_repository_that_cannot_be_fetched_is_told_in_the_words_of_git():
    error = failed(GIT)
    assert (error.code, error.message) == (
        "repository",
        "a Git repository could not be fetched",
    )
    assert (
        error.why
        == "fatal: unable to access 'https://git.example/mcubes.git/': Could not resolve host: git.example"
    )


def test_a_contradiction_is_told_from_a_missing_package_and_from_a_missing_network():
    assert conflict(CONFLICT).exit_code == 3
    missing = conflict(
        "× No solution found\n╰─▶ Because nosuch was not found in the package registry and you require nosuch"
    )
    assert (missing.code, missing.exit_code) == ("package-not-found", 4)
    assert "nosuch" in missing.message
    refused = failed(
        "error: No solution found\n  cause: Because six was not found in the package registry and you require six\n\n"
        "hint: An index URL (https://x/simple) could not be queried due to a lack of valid authentication credentials"
        " (401 Unauthorized)"
    )
    assert (refused.code, refused.message) == (
        "http-status",
        "https://x/simple answered 401",
    )
    assert "user name and password" in refused.hint
    silent = failed(
        "error: Failed to fetch: `https://x/`\n  Caused by: error sending request for url (https://x/)"
    )
    assert (silent.code, silent.exit_code) == ("network", 4)


def test_an_index_that_refuses_a_file_is_not_called_unreachable():
    error = failed(
        "error: Failed to fetch: `https://x/a.whl`\n  Caused by: HTTP status client error (404 Not Found)"
    )
    assert (error.code, error.exit_code) == ("http-status", 4)


def test_uvs_reason_is_kept_in_one_line_without_its_arrows():
    why = conflict(CONFLICT).why or ""
    assert "\n" not in why
    assert "╰" not in why
    assert "cause:" not in why
    assert "torch==2.14.1+cu126 depends on triton==3.8.0" in why


def test_anything_else_is_an_installation_that_failed():
    assert failed("error: the sky is falling").why == "the sky is falling"


def test_a_cache_that_cannot_be_written_is_named_with_the_way_out():
    error = failed(
        "error: Failed to initialize cache at `/sys/x`\n  cause: failed to create directory `/sys/x`"
    )
    assert (error.code, error.exit_code) == ("not-writable", 4)
    assert "UV_CACHE_DIR" in (error.hint or "")


@pytest.mark.parametrize("explain", [explain_installation, failed, build_failure])
def test_a_build_that_fails_keeps_its_lines_with_the_cause_last(explain):
    assert callable(explain)
    error = explain(COMPILER)
    assert (error.code, error.exit_code) == ("build-failed", 4)
    assert "fastlib==1.0" in error.message
    lines = error.evidence.splitlines()
    assert "running build_ext" in lines
    assert any("fast.h: No such file" in line for line in lines)
    assert lines[-1] == "error: command 'cc' failed with exit code 1"
    assert error.hint


def test_a_traceback_ends_with_its_error_and_keeps_no_password():
    told = "Traceback (most recent call last):\n  fetch('https://me:secret@index.example/x')\nKeyError: 'HOME'\nbye"
    error = build_failure(
        f"Failed to build `a @ file:///a`\nThe build backend returned an error\n{told}"
    )
    assert error
    assert (error.hint or "").startswith("Bring all files of a here")
    assert (error.evidence or "").endswith("KeyError: 'HOME'")
    assert "secret" not in (error.evidence or "")


def test_an_index_that_fails_in_a_build_is_no_fault_of_the_package():
    assert build_failure(INDEX) is None
    assert failed(INDEX).code == "network"


def test_what_came_before_the_failure_is_no_cause():
    error = explain_installation("Downloaded torch\nerror: Hash mismatch for `six==1`")

    assert error.why == "Hash mismatch for `six==1`"


def test_what_a_power_cut_left_in_the_cache_is_named_with_the_way_out():
    error = explain_installation(
        "error: Failed to install: alpha-2.0-py3-none-any.whl (alpha==2.0)\n"
        "  Caused by: The wheel is invalid: Invalid Wheel-Version in `WHEEL` file: None\n"
    )
    assert error.code == "cache-damaged"
    assert error.hint is not None
    assert error.hint.endswith("uv cache clean alpha   # then run it again")


def test_of_a_long_account_the_end_is_told():
    steps = [f"because a{number} depends on b{number}, c" for number in range(90)]
    message = (
        f"No solution found: {'. And '.join(steps)}. And because you require a, no"
    )
    failure = explain_failure(message)

    assert isinstance(failure, Conflict)
    assert failure.why.startswith("… because a")
    assert failure.why.endswith("because you require a, no")
    assert len(failure.why) < 1300
