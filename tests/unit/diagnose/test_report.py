"""A report names no person and no host, and gives no secret away."""

import os
from pathlib import Path

import pytest

from gpuinstall.diagnose.report import own_words, private_words, scrubbed, without_secrets


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("https://user:hunter2@index.example/simple", "https://index.example/simple"),
        ("HF_TOKEN=hf_abcdefg", "HF_TOKEN=removed"),
        ('"api_key": "sk-123"', '"api_key": "removed"'),
        ("password: hunter2", "password: removed"),
        ("GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77", "GPU-removed"),
        ("MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", "GPU-removed"),
        ("/home/alice/project/.venv", "/home/user/project/.venv"),
        ("/Users/alice/project", "/Users/user/project"),
        (r"C:\Users\alice\project", r"C:\Users\user\project"),
        ("proxy 10.1.2.3:8080", "proxy address-removed:8080"),
        ("http://10.1.2.3/simple", "http://address-removed/simple"),
        ("cannot connect to 10.1.2.3", "cannot connect to address-removed"),
        ("by alice.b@lab.example", "by address-removed"),
        ("cloned with ghp_0123456789abcdefghij", "cloned with removed"),
        ("key sk-proj-abcd-efgh-ijkl-mnop", "key removed"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer removed"),
        ("authorization=Basic dXNlcjpwYXNz", "authorization=Basic removed"),
        ("curl -H 'bearer abc.def'", "curl -H 'bearer removed"),
        (
            "https://bucket.example/x?X-Amz-Signature=dead&n=1",
            "https://bucket.example/x?X-Amz-Signature=removed&n=1",
        ),
        ("uv publish --password hunter2", "uv publish --password removed"),
        ("AKIAIOSFODNN7EXAMPLE", "removed"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc", "removed"),
    ],
)
def test_secrets_are_taken_out(text, left):
    assert without_secrets(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "driver 535.183.01",
        "nvidia-cudnn-cu12 9.10.2.21-py3",
        "cuDNN 9.11.0.98 has no code",
        "cuda 12.2",
        "10de:20b2",
    ],
)
def test_versions_stay(text):
    assert without_secrets(text) == text


def test_a_user_whom_the_system_does_not_know_has_no_words_to_take_out(
    monkeypatch,
):
    for name in ("HOME", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)  # as in a container that is run with --user
    with pytest.raises(RuntimeError):
        Path.home()

    assert scrubbed("/srv/project/.venv", own_words()) == "/srv/project/.venv"


def test_names_are_taken_out_as_whole_words():
    private = private_words("gpu-07.cluster.example", "ada", "/home/ada")
    text = "/home/ada/.local/lib ada@gpu-07 gpu-07.cluster.example canada"
    assert scrubbed(text, private) == "/home/user/.local/lib user@host host canada"


def test_the_administrators_own_name_says_nothing():
    assert private_words("gpu-07", "root", "/root") == (("gpu-07", "host"), ("gpu-07", "host"))


@pytest.mark.parametrize("name", ["ubuntu", "nvidia", "jetson"])
def test_a_name_that_images_come_with_leaves_the_facts_as_they_are(name):
    facts = "ID=ubuntu\nnvidia,tegra234\n../drivers/nvidia\nupdates/dkms/nvidia.ko\njetson\n"
    assert scrubbed(facts, private_words(name, name, f"/home/{name}")) == facts
