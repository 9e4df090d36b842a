"""The copy of a lock that uv fetches from, and what uv says where it cannot."""

import pytest
import tomli

from gpuinstall.lock.file.fetch import Transfer
from gpuinstall.lock.file.lock import parse, unknown_hash
from gpuinstall.lock.uv.errors import explain_installation
from tests.unit.install.environments import lock_text

TEXT = lock_text("2.14.1+cu126").replace("+cu126-cp", "%2Bcu126-cp")
WHEEL = "torch-2.14.1+cu126-cp312-cp312-linux_x86_64.whl"


def elsewhere(file):
    return f"http://127.0.0.1:9/{file.sha256}/{file.name}"


def copied(text, folder, wheels=None, torch=None, default=None):
    """The package as uv reads it."""
    lock = parse("pylock.cu126.toml", text)
    private = folder / "private"
    transfer = Transfer(lock, folder, lock.names, torch, private, wheels=wheels)
    return tomli.loads(transfer.private(elsewhere, default))["packages"][0]


def test_a_wheel_is_fetched_from_where_we_say_and_keeps_its_hash(tmp_path):
    hashes = {"sha256": "1" * 64}
    assert copied(TEXT, tmp_path)["wheels"] == [
        {"url": f"http://127.0.0.1:9/{'1' * 64}/{WHEEL}", "hashes": hashes}
    ]


def test_a_hash_that_is_not_known_yet_is_none(tmp_path):
    text = TEXT.replace("1" * 64, unknown_hash("https://index.example"))
    assert copied(text, tmp_path)["wheels"] == [
        {"url": f"http://127.0.0.1:9/None/{WHEEL}", "hashes": {}}
    ]


def test_a_wheel_of_a_folder_that_was_given_is_named_by_its_path(tmp_path):
    (tmp_path / WHEEL).touch()
    entry = {"path": str(tmp_path / WHEEL), "hashes": {"sha256": "1" * 64}}
    assert copied(TEXT, tmp_path, wheels=tmp_path)["wheels"] == [entry]


@pytest.mark.parametrize(
    ("index", "default", "found"),
    [
        (
            "https://index.example/whl/cu126",
            "https://mirror.example",
            "https://index.example/whl/cu126",
        ),
        (None, "https://mirror.example", "https://mirror.example"),
        ("/folder/of/wheels", "https://mirror.example", None),
        (None, None, None),
    ],
)
def test_the_family_has_an_index_of_its_own(tmp_path, index, default, found):
    package = copied(TEXT, tmp_path, torch=index, default=default)
    assert package.get("index") == found


def test_a_path_is_read_from_the_folder_of_the_lock(tmp_path):
    text = (
        TEXT.replace("url = ", "path = ")
        .replace("https://index.example/", "wheels/")
        .replace("%2B", "+")
    )
    [entry] = copied(text, tmp_path)["wheels"]
    assert entry["path"] == str(tmp_path / "wheels" / WHEEL)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (
            "error: Failed to install\n  Caused by: Hash mismatch for `torch==2.14.1`\n\nExpected:\n  sha256:1",
            "hash-mismatch",
        ),
        ("error: failed to write: No space left on device (os error 28)", "no-space"),
        (
            "error: failed to create directory: Permission denied (os error 13)",
            "not-writable",
        ),
        (
            "error: Failed to fetch: `https://x/x.whl`\n  Caused by: error sending request for url",
            "network",
        ),
        (
            "error: Failed to fetch: `https://x/x.whl`\n  Caused by: HTTP status client error (404 Not Found)",
            "file-gone",
        ),
        (
            "error: Failed to fetch: `https://x/x.whl`\n  Caused by: HTTP status server error (503 Service Unavailable)",
            "http-status",
        ),
        (
            "error: Failed to download `x==1`\n  cause: Network connectivity is disabled, but the data wasn't found",
            "offline",
        ),
        (
            "error: Failed to download `idna==3.2`\n  cause: Failed to extract archive: idna.whl\n  cause: unexpected BufError",
            "file-damaged",
        ),
        ("error: something new", "installation-failed"),
    ],
)
def test_uvs_failure_gets_a_name_of_ours(message, code):
    error = explain_installation(
        f"Using Python 3.12.1 environment at: .venv\n{message}"
    )
    assert error.code == code
    assert "Using Python" not in (error.why or "")
    assert error.exit_code == 4
    assert "\n" not in error.message


def test_the_folder_that_cannot_be_written_is_named():
    denied = "error: Could not create temporary file\n  cause: Permission denied (os error 13) at path"
    hint = explain_installation(f'{denied} "/srv/a uv/.tmpzj"').hint
    assert hint is not None
    assert hint.startswith("ls -ld '/srv/a uv'   # ")
