"""``gpuinstall self``: the tool that bootstrap.py made goes."""


def command(person):
    return person.data / "bin" / "gpuinstall"


def test_it_is_removed_only_when_that_is_confirmed_and_environments_stay(equipped, tmp_path):
    person = equipped.copied(tmp_path / "home")
    (person.home / "project" / ".venv").mkdir(parents=True)
    (person.home / ".cache/gpuinstall/scripts/a").mkdir(parents=True)
    asked = person.run(command(person), "self", "uninstall")

    assert asked.returncode == 2
    assert "nothing was removed" in asked.stderr
    assert "gpuinstall self uninstall --yes" in asked.stderr
    assert command(person).exists()
    done = person.run(command(person), "self", "uninstall", "--yes", cwd=person.data.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Removed     gpuinstall, ~/.cache/gpuinstall\n"
    assert not list(person.home.glob(".*/gpuinstall/scripts"))
    assert not list(person.home.glob(".local/*/gpuinstall/*"))
    assert (person.home / "project" / ".venv").exists()


def test_only_what_bootstrap_made_is_removed(equipped, tmp_path):
    person = equipped.copied(tmp_path / "home")
    notes = [
        person.data / name / "mine"
        for name in ("2026-notes", "uv-notes", "uv-0.1.2", "bin", ".new-idea")
    ]
    for file in notes:
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine", "utf-8")
    done = person.run(command(person), "self", "uninstall", "--yes", cwd=person.data.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        "Kept        .new-idea, 2026-notes, bin, uv-0.1.2, uv-notes, which bootstrap.py did not make"
        in done.stdout
    )
    assert {path for path in person.data.rglob("*") if path.is_file()} == set(notes)
