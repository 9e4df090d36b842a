"""Records of nodes and their report."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.cli.node_records import (
    find_node_name,
    read_report,
    split_node_names,
    write_record,
)
from gpuinstall.machine.options import machine_from_options
from tests.lab.skips import needs_links

H100 = machine_from_options(("H100 SXM",) * 8, "580.95.05")
V100 = machine_from_options(("V100",), "470.256.02")
PASSED = {
    "exit_code": 0,
    "data": {"chosen": "pylock.cu130.toml", "verdict": {"status": "passed"}},
}
REFUSED = {
    "exit_code": 8,
    "errors": [{"code": "x", "message": "no driver", "hint": "sudo reboot"}],
}


def record(folder, node, machine, document=PASSED, command="sync"):
    write_record(folder, node, command, machine, document)


def test_node_report_lists_groups_and_missing_nodes(tmp_path):
    record(tmp_path, "n3", H100)
    record(tmp_path, "n1", V100)
    record(tmp_path, "n2", H100)
    lock, passed = "pylock.cu130.toml", "passed"

    report = read_report(tmp_path, split_node_names("n0,n1,n2,n4"))
    assert [tuple(group) for group in report.groups] == [
        ("8 × NVIDIA H100 SXM (sm_90)", "580.95.05", lock, passed, ("n2", "n3")),
        ("NVIDIA V100 (sm_70)", "470.256.02", lock, passed, ("n1",)),
    ]
    assert report.missing == ("n0", "n4")
    document = report.to_dict()
    assert document.keys() == {"nodes", "failed", "missing", "groups"}
    assert document["nodes"] == ["n1", "n2", "n3"]


def test_node_report_shows_first_failure_of_each_node(tmp_path):
    record(tmp_path, "n1", H100, REFUSED)
    record(tmp_path, "n1", H100, {"exit_code": 5, "errors": []}, "verify")
    record(tmp_path, "n2", None, {"exit_code": 4}, "verify")

    failed = read_report(tmp_path, expected=()).failed
    assert [tuple(failure) for failure in failed] == [
        ("n1", "sync", "no driver", "sudo reboot"),
        ("n2", "verify", "exit status 4", None),
    ]


def test_failed_command_is_not_reported_as_passed(tmp_path):
    document = {"exit_code": 5, "data": {"status": "passed"}}
    record(tmp_path, "n1", None, document, "verify")
    assert read_report(tmp_path, expected=()).groups[0].verdict == "failed"


def test_node_names_are_parsed_from_list():
    names = split_node_names("login,n9.site\nn09 rack-7.node-3\n")
    assert names == ["login", "n9.site", "n09", "rack-7.node-3"]


@pytest.mark.parametrize("text", ["", "n1,", "../n1", "n[1-2]", "n1;ls"])
def test_malformed_node_names_are_rejected(text):
    with pytest.raises(UsageError, match="is not a valid node name"):
        split_node_names(text)


def test_node_name_is_read_from_its_variable(monkeypatch):
    monkeypatch.setenv("GPUINSTALL_NODE", "rack-7.node-3")
    assert find_node_name() == "rack-7.node-3"
    monkeypatch.setenv("GPUINSTALL_NODE", "../n1")
    with pytest.raises(UsageError, match="not a valid node name"):
        find_node_name()


@needs_links
def test_links_and_pipes_as_node_records_are_rejected(tmp_path):
    (tmp_path / "secret").write_text("{}", "utf-8")
    folder = tmp_path / "records"
    folder.mkdir()
    (folder / "n1.sync.json").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "n2.sync.json")

    messages = [failure.message for failure in read_report(folder, expected=()).failed]
    assert messages == ["it is a link", "it is not a regular file"]


def test_concurrent_writers_keep_all_records(tmp_path):
    expected = [f"n{number:04}" for number in range(1, 201)]
    # A node's earlier record is replaced.
    record(tmp_path, "n0001", V100)
    with ThreadPoolExecutor(32) as writers:
        writing = [writers.submit(record, tmp_path, node, H100) for node in expected]
        while not all(done.done() for done in writing):
            assert read_report(tmp_path, expected=()).failed == ()
    assert [done.exception() for done in writing if done.exception()] == []

    report = read_report(tmp_path, expected)
    assert (report.failed, report.missing) == ((), ())
    assert [group.nodes for group in report.groups] == [tuple(expected)]
    assert len(list(tmp_path.iterdir())) == len(expected)


def test_password_in_a_url_is_not_recorded(tmp_path):
    document = {
        "exit_code": 4,
        "errors": [{"message": "https://me:secret@index.example/simple"}],
    }
    record(tmp_path, "n1", H100, document)

    assert "secret" not in (tmp_path / "n1.sync.json").read_text("utf-8")
