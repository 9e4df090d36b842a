from __future__ import annotations

from gpuinstall.errors import InstallationError
from gpuinstall.lock.resolver import parse_versions
from gpuinstall.lock.uv_failure import ConflictError, UnlistedError, explain_failure

CONFLICT = """  × No solution found when resolving dependencies:
  ╰─▶ Because there is no version of triton==3.8.0 and torch==2.14.1+cu126 depends on triton==3.8.0, we can conclude
      that torch==2.14.1+cu126 cannot be used.
      And because the-request depends on torch==2.14.1+cu126, your requirements are unsatisfiable.
"""


def test_one_of_pytorchs_packages_that_no_source_has_is_named_with_the_way_to_ask_for_it() -> None:
    said = CONFLICT.replace("there is no version of triton==3.8.0", "there are no versions of torchtriton")
    error = explain_failure(said, {"torchtriton", "torchdata"})
    assert isinstance(error, UnlistedError)
    assert (error.code, error.exit_code) == ("family-unlisted", 4)
    assert "gpuinstall install torchtriton" in (error.hint or "")
    assert not isinstance(explain_failure(said, {"torchdata"}), UnlistedError)


def test_a_contradiction_is_told_from_a_missing_package_and_from_a_missing_network() -> None:
    assert isinstance(explain_failure(CONFLICT), ConflictError)
    assert explain_failure(CONFLICT).exit_code == 3
    missing = explain_failure(
        "× No solution found\n╰─▶ Because nosuch was not found in the package registry and you require nosuch"
    )
    assert (missing.code, missing.exit_code) == ("package-not-found", 4)
    assert "nosuch" in missing.message
    silent = explain_failure(
        "error: Failed to fetch: `https://x/`\n  Caused by: error sending request for url (https://x/)"
    )
    assert (silent.code, silent.exit_code) == ("network", 4)


def test_an_index_that_refuses_a_file_is_not_called_unreachable() -> None:
    error = explain_failure(
        "error: Failed to fetch: `https://x/a.whl`\n  Caused by: HTTP status client error (404 Not Found)"
    )
    assert (error.code, error.exit_code) == ("http-status", 4)


def test_uvs_reason_is_kept_in_one_line_without_its_arrows() -> None:
    why = explain_failure(CONFLICT).why or ""
    assert "\n" not in why
    assert "╰" not in why
    assert "cause:" not in why
    assert "torch==2.14.1+cu126 depends on triton==3.8.0" in why


def test_versions_and_who_asks_for_them_are_read_from_the_annotations() -> None:
    text = (
        "numpy==2.3.4    # via vllm\ntorch==2.9.1+cu126    # via the-request (pyproject.toml), vllm, xformers\n"
        "vllm==0.9.1\nmine @ file:///mine  # via the-request (pyproject.toml)\n"
    )
    assert parse_versions(text) == {
        "numpy": ("2.3.4", ("vllm",)),
        "torch": ("2.9.1+cu126", ("vllm", "xformers")),
        "vllm": ("0.9.1", ()),
    }


def test_anything_else_is_an_installation_that_failed() -> None:
    error = explain_failure("error: the sky is falling")
    assert isinstance(error, InstallationError)
    assert error.why == "the sky is falling"


def test_a_cache_that_cannot_be_written_is_named_with_the_way_out() -> None:
    error = explain_failure(
        "error: Failed to initialize cache at `/sys/x`\n  cause: failed to create directory `/sys/x`"
    )
    assert (error.code, error.exit_code) == ("not-writable", 4)
    assert "UV_CACHE_DIR" in (error.hint or "")
