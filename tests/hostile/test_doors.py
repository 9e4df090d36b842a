"""Tests that malicious folders and servers start no programs."""

from __future__ import annotations

PROJECT = '[project]\nname = "x"\nversion = "1"\ndependencies = ["torch"]\n'


DEEP = {
    "a deep table": "[" + ".".join("a" * 3000) + "]\n",
    "a deep list": f"x = {'[' * 3000}{']' * 3000}\n",
    "a deep tool": "[tool.pdm.source." + ".".join("a" * 3000) + "]\nb = 1\n",
    "a deep marker": f'{PROJECT[:-3]}", "x; {"(" * 3000}os_name == \'a\'{")" * 3000}"]\n',
}


def test_deeply_nested_pyproject_causes_no_traceback(here):
    for form, text in DEEP.items():
        here.write("pyproject.toml", text)
        for words in ("plan", "doctor"):
            done = here.run(*words.split())
            assert "a bug in gpuinstall" not in done.err, (form, words, done.err)


def test_circular_symlink_is_reported(here):
    names = "uv.toml pyproject.toml requirements.txt pylock.cpu.toml .venv"
    for name in names.split():
        (here.folder / name).symlink_to(name)
        for words in ("plan", "lock --target cpu --offline", "doctor", "sync"):
            done = here.run(*words.split())
            assert "a bug in gpuinstall" not in done.err, (name, words, done.err)
        (here.folder / name).unlink()


def test_line_break_in_a_lock_name_is_escaped(here):
    assert here.run("lock", "-q", "--target", "cpu", "torch").status == 0
    lock = here.folder / "pylock.cpu.toml"
    lock.rename(here.folder / "pylock.a\nresources: {}\n.toml")

    done = here.run("export", "needs")

    assert "\nresources" not in done.out
