import pytest
import tomli

from gpuinstall.export.formats import pixi
from tests.unit.export.locks import cuda_lock, lock, wheel

# The tables and keys of https://pixi.prefix.dev/latest/reference/pixi_manifest and of the schema that pixi publishes
# with it, as of 2026-11, as far as they are used; the platforms are conda's.
TABLES = {
    "workspace": {"name", "channels", "platforms"},
    "dependencies": None,
    "pypi-dependencies": None,
}
BY_ADDRESS = {"url", "extras", "subdirectory"}
PLATFORMS = {"linux-64", "linux-aarch64", "osx-64", "osx-arm64", "win-64", "win-arm64"}


def document(text):
    return tomli.loads(text)


@pytest.mark.parametrize(
    ("target", "platform"),
    [
        ("cu126", "linux-64"),
        ("cu130-linux-aarch64", "linux-aarch64"),
        ("cu130-windows-x86_64", "win-64"),
    ],
)
def test_a_lock_is_for_the_platform_that_it_says(target, platform):
    assert document(pixi(cuda_lock(target)))["workspace"]["platforms"] == [platform]


def test_a_package_of_another_system_is_left_out_and_one_of_this_stays():
    more = [wheel("colorama", "0.4.6", marker="sys_platform == 'win32'")]
    more += [wheel("uvloop", "0.21.0", marker="sys_platform == 'linux'")]
    read = document(pixi(lock("cpu", *more)))

    assert read["pypi-dependencies"] == {"uvloop": "==0.21.0"}


def test_a_package_from_a_folder_is_left_out_and_named():
    text = pixi(lock("cpu", {"name": "mine", "directory": {"path": "mine"}}))
    assert "# Without mine: pip install --no-deps ./mine\n" in text
    assert document(text)["pypi-dependencies"] == {}
