"""Tests with indexes that require a password from the URL or keyring."""

import os
from dataclasses import replace

import pytest

from tests.lab.driver import RTX_4090
from tests.lab.index import IndexBehavior, SimulatedIndex
from tests.lab.workshop import Workshop


def test_torch_index_login_is_used_and_hidden(stand_in_folder, tmp_path):
    habits = IndexBehavior(absolute=False, torch_credentials="me:s3cr3t")
    with SimulatedIndex(stand_in_folder, habits) as index:
        here = Workshop.made(tmp_path, index.environment())
        refused = here.refusal("lock", "torch", "--target", "cu126", exit_code=4)
        assert "user name and password" in refused["hint"]
        named = {
            **here.variables,
            "GPUINSTALL_TORCH_INDEX": index.torch_index.replace("//", "//me:s3cr3t@"),
        }
        here = replace(here, variables=named)
        done = here.succeed("lock", "torch", "--target", "cu126", "--verbose")
        synced = here.succeed("sync", "--target", "cu126", "--verbose")
        inside = "".join(
            path.read_text()
            for path in (here.folder / ".venv").glob("*.*")
            if path.is_file()
        )
        seen = (
            done.out,
            done.err,
            synced.out,
            synced.err,
            here.lock("pylock.cu126.toml"),
            inside,
        )
        assert not any("s3cr3t" in text for text in seen)


@pytest.mark.heavy
def test_keyring_password_is_used(stand_in_folder, play, tmp_path):
    play(RTX_4090)
    keyring = tmp_path / "bin" / "keyring"
    keyring.parent.mkdir()
    keyring.write_text('#!/bin/sh\n[ "$1 $3" = "get user" ] && echo s3cret\n', "utf-8")
    keyring.chmod(0o755)
    with SimulatedIndex(
        stand_in_folder, IndexBehavior(credentials="user:s3cret")
    ) as index:
        variables = index.environment() | {
            "UV_DEFAULT_INDEX": index.environment()["UV_DEFAULT_INDEX"].replace(
                "user:s3cret@", "user@"
            ),
            "PATH": f"{keyring.parent}:{os.environ['PATH']}",
        }
        workshop = Workshop.made(tmp_path, variables)
        refused = workshop.run("install")
        assert refused.status == 4, refused.err
        opened = replace(
            workshop, variables=variables | {"UV_KEYRING_PROVIDER": "subprocess"}
        ).run("install")
    assert opened.status == 0, opened.err
    assert "s3cret" not in opened.out + opened.err + workshop.lock("pylock.cu126.toml")


def test_typed_login_is_reported_and_not_stored(stand_in_folder, tmp_path):
    with SimulatedIndex(
        stand_in_folder, IndexBehavior(credentials="user:s3cret")
    ) as index:
        variables = index.environment()
        address = variables["UV_DEFAULT_INDEX"]
        plain = address.replace("user:s3cret@", "")
        here = Workshop.made(tmp_path, variables | {"UV_DEFAULT_INDEX": plain})
        words = ("torch", "--target", "cu126", "--default-index", address)
        done = here.succeed("lock", *words)
        refused = here.refusal("sync", "--target", "cu126", exit_code=4)

    assert "do not contain the login of --default-index" in done.err
    assert "s3cret" not in done.err + here.lock("pylock.cu126.toml")
    assert "user name and password" in refused["hint"]
