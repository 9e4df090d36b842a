"""What an environment's folder tells, read from real records."""

from tests.unit.diagnose.evidence import installed_in


def test_an_environments_folder_is_read_once_for_both_of_its_library_folders(
    tmp_path,
):
    site = tmp_path / "lib" / "python3.12" / "site-packages"
    for name in ("torch-2.11.0+cu126", "nvidia_cudnn_cu12-9.10.2.21", "Jinja2-3.1.6"):
        (site / f"{name}.dist-info").mkdir(parents=True)
    (tmp_path / "lib64").symlink_to("lib")
    packages = installed_in(tmp_path)
    assert sorted((package.name, package.version) for package in packages) == [
        ("jinja2", "3.1.6"),
        ("nvidia-cudnn-cu12", "9.10.2.21"),
        ("torch", "2.11.0+cu126"),
    ]


def test_a_folder_that_is_no_environment_holds_nothing(tmp_path):
    assert installed_in(tmp_path / "absent") == ()
