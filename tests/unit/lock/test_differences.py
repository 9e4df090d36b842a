from pathlib import Path

from gpuinstall.lock.lock import parse
from gpuinstall.lock.write import Written, differences

HEAD = 'lock-version = "1.0"\nrequires-python = "==3.12.*"\ncreated-by = "gpuinstall"\n'
ENTRY = """
[[packages]]
name = "{name}"
version = "{version}"
[[packages.wheels]]
url = "https://index.example/{name}-{version}-py3-none-any.whl"
hashes = {{ sha256 = "{sha256}" }}
"""


def lock(target="cpu", **versions):
    entries = (
        ENTRY.format(
            name=name,
            version=version.partition("#")[0],
            sha256=(version.partition("#")[2] or "1") * 64,
        )
        for name, version in versions.items()
    )
    return parse(f"pylock.{target}.toml", HEAD + "".join(entries))


def written(target, **versions):
    made = lock(target, **versions)
    return Written(Path(made.name), made, "written")


def test_each_target_is_named_with_its_version():
    made = [
        written("cpu", numpy="1", torch="2"),
        written("cu126", numpy="2", torch="2"),
    ]
    assert list(differences(made, {"torch"})) == [
        ("numpy", "cpu", "1", "the newest for this target"),
        ("numpy", "cu126", "2", "the newest for this target"),
    ]


def test_a_backend_in_a_version_and_a_package_of_one_target_make_no_difference():
    made = [written("cpu", torch="2+cpu", only="1"), written("cu126", torch="2+cu126")]
    assert differences(made, {"torch"}) == ()


def test_the_family_differs_with_torch():
    made = [
        written("cu118", torch="2.7.1", triton="3.3.1"),
        written("cu132", torch="2.15.0", triton="3.9.0"),
    ]
    assert {(each.package, each.why) for each in differences(made, {"torch", "triton"})} == {
        ("torch", "the newest for this target"),
        ("triton", "it belongs to torch 2.7.1"),
        ("triton", "it belongs to torch 2.15.0"),
    }
