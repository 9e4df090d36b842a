from gpuinstall.lock.file.lock import (
    change_lines,
    compare_versions,
    split_packages,
    version_conflicts,
)
from tests.unit.export.locks import lock, wheel


def locked(target, **versions):
    return lock(target, *(wheel(name, versions[name]) for name in versions))


def test_a_package_has_its_version_by_target_where_that_differs():
    locks = [locked("cpu", numpy="1", torch="2"), locked("cu126", numpy="2", torch="2")]
    assert split_packages(locks) == {"numpy": {"cpu": "1", "cu126": "2"}}
    assert version_conflicts(locks) == {"numpy": "1 for cpu, 2 for cu126"}


def test_a_backend_in_a_version_and_a_package_of_one_target_make_no_difference():
    locks = [locked("cpu", torch="2+cpu", only="1"), locked("cu126", torch="2+cu126")]
    assert split_packages(locks) == {}


def test_torch_is_the_first_change_and_ten_that_come_are_named():
    new = {f"part-{number:02}": "1" for number in range(12)} | {"torch": "2"}
    lines = change_lines(compare_versions({"gone": "1"}, new))
    assert lines[0] == "+ torch 2"
    assert "- gone 1" in lines
    assert lines[-1] == "+ 3 more; --verbose names them"
    assert len(lines) == 12
