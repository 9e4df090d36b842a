import re
import shutil

import pytest

from gpuinstall.base import process
from gpuinstall.base.errors import UsageError
from gpuinstall.cli.main import run_command_line
from gpuinstall.export.dockerfile import AnyImage
from gpuinstall.lock.lock import parse
from tests.unit.export.locks import cpu_lock, cuda_lock, dockerfile_findings, lock, source, wheel

LAB = wheel("jupyterlab", "4.5.0")
LOCKS = [cuda_lock("cu126", LAB), cuda_lock("cu130", LAB)]
BAKED = AnyImage.of(LOCKS)
AT_START, WHEELS = AnyImage.of(LOCKS, at_start=True), AnyImage.of(LOCKS, wheels=True)
TEXTS = {
    f"{name} {' '.join(extras)}": image.dockerfile(extras)
    for name, image in (("baked", BAKED), ("at start", AT_START), ("wheels", WHEELS))
    for extras in ((), ("jupyter",), ("ssh",), ("ssh", "jupyter"))
}


def test_the_linter_for_dockerfiles_finds_nothing(tmp_path):
    assert dockerfile_findings(TEXTS, tmp_path) == ""


def test_each_environment_is_a_layer_of_its_own_made_of_links_to_wheels_unpacked_once():
    text = BAKED.dockerfile()
    assert re.findall(r"^RUN gpuinstall sync .*--target (\S+)", text, re.MULTILINE) == [
        "cu126",
        "cu130",
    ]
    assert "UV_LINK_MODE=symlink" in text
    assert text.index("USER 1000:1000") < text.index("RUN gpuinstall sync")


def test_an_image_brings_the_libraries_that_a_lock_was_made_with():
    evidence = '[tool.gpuinstall.cuda-compat]\nurl = "https://index.example/compat.tar.xz"\n'
    recorded = parse(LOCKS[1].name, f"{LOCKS[1].text}\n{evidence}")

    text = AnyImage.of([LOCKS[0], recorded]).dockerfile()

    assert "--target cu126 --venv .venv-cu126" in text
    assert "--target cu130 --cuda-compat --venv .venv-cu130" in text


def test_a_thin_image_has_no_environment_and_one_for_sites_without_network_has_the_wheels():
    for text in (AT_START.dockerfile(), WHEELS.dockerfile()):
        assert "gpuinstall sync" not in text
    assert "RUN gpuinstall lock download --quiet /opt/torch/wheels" in WHEELS.dockerfile()
    assert "--download" not in AT_START.dockerfile()


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (BAKED, "run --any --venv /opt/torch/.venv --no-proof python -V"),
        (AT_START, "run --any --install --venv {volume}/.venv --no-proof python -V"),
        (
            WHEELS,
            "run --any --install --offline --wheels /opt/torch/wheels --venv {volume}/.venv --no-proof python -V",
        ),
    ],
    ids=["baked", "at start", "wheels"],
)
def test_the_entry_point_hands_options_and_command_to_run(image, words, tmp_path):
    program = tmp_path / "gpuinstall"
    program.write_text('#!/bin/sh\necho "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    entry, volume = list(image.entry), tmp_path / "volume"
    if image.at_start:
        (tmp_path / "pylock.cu126.toml").write_text("a lock", encoding="utf-8")
        entry[2], entry[3] = (
            entry[2].replace("/opt/torch/pylock", f"{tmp_path}/pylock"),
            str(volume),
        )
    path = f"{tmp_path}:/usr/bin:/bin"
    done = process.run(
        [shutil.which(entry[0], path=path) or entry[0], *entry[1:], "--no-proof", "python", "-V"],
        env={"PATH": path},
    )
    assert (done.status, done.out, done.err) == (0, words.format(volume=volume) + "\n", "")
    assert not image.at_start or (volume / "pylock.cu126.toml").exists()


def test_images_of_other_locks_have_other_volumes():
    assert AnyImage.of(LOCKS[:1], at_start=True).entry[-1] != AT_START.entry[-1]


def test_locks_for_other_platforms_are_left_out_and_those_of_one_python_kept_together():
    windows, arm = (
        lock("cu130-windows-x86_64", wheel("torch", "2.14.1")),
        cuda_lock("cu130-linux-aarch64"),
    )
    image = AnyImage.of([*LOCKS, windows, arm])
    assert (image.locks, image.left_out, image.platform) == (
        tuple(LOCKS),
        (windows, arm),
        "linux/amd64",
    )
    assert AnyImage.of([arm]).platform == "linux/arm64"
    with pytest.raises(UsageError, match="is not for Linux"):
        AnyImage.of([windows])
    with pytest.raises(UsageError, match="are for different Pythons"):
        AnyImage.of([*LOCKS, lock("cpu", wheel("torch", "2.14.1+cpu"), python="3.11")])


def test_what_would_be_compiled_or_is_not_locked_is_refused():
    with pytest.raises(UsageError, match="flash-attn would be compiled"):
        AnyImage.of([cuda_lock("cu126", source("flash-attn", "2.9"))])
    with pytest.raises(UsageError, match=r"pylock\.cpu\.toml holds no JupyterLab"):
        AnyImage.of([*LOCKS, cpu_lock()]).dockerfile(["jupyter"])


def test_the_command_writes_it_and_refuses_what_belongs_to_it_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for held in (*LOCKS, lock("cu130-windows-x86_64", wheel("torch", "2.14.1"))):
        (tmp_path / held.name).write_text(held.text, encoding="utf-8")
    assert (
        run_command_line(["export", "dockerfile", "--any", "--with", "ssh", "-o", "Dockerfile"])
        == 0
    )
    text = (tmp_path / "Dockerfile").read_text(encoding="utf-8")
    assert text == TEXTS["baked ssh"]
    assert (
        "left out, for another platform: pylock.cu130-windows-x86_64.toml"
        in capsys.readouterr().err
    )
    assert run_command_line(["export", "dockerfile", "--at-start"]) == 2
    assert " --any\n" in capsys.readouterr().err
