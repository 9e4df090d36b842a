"""Tests that malicious folders and servers start no programs."""

from __future__ import annotations

PROJECT = '[project]\nname = "x"\nversion = "1"\ndependencies = ["torch"]\n'


WRONG_TYPES = {
    "tool": "tool = 1\n",
    "[tool.uv]": "[tool]\nuv = [1]\n",
    "[tool.poetry]": '[tool]\npoetry = "x"\n',
    "[tool.gpuinstall]": "[tool]\ngpuinstall = 1\n",
    "poetry's dependencies": "[tool.poetry]\ndependencies = [1]\n",
    "an index's address": "[[tool.uv.index]]\nurl = 1\n",
    "an index": "[tool.uv]\nindex = 1\n",
    "a list of indexes": '[tool.uv]\nextra-index-url = "x"\n',
    "constraints": "[tool.uv]\nconstraint-dependencies = 5\n",
    "sources": "[tool.uv]\nsources = 5\n",
    "a source": f"{PROJECT}[tool.uv.sources]\ntorch = {{ url = 5 }}\n",
    "dependencies": '[project]\nname = "x"\nversion = "1"\ndependencies = 5\n',
    "a dependency": '[project]\nname = "x"\nversion = "1"\ndependencies = [5]\n',
    "a name": "[project]\nname = 5\n",
    "groups": "dependency-groups = 5\n",
    "pdm": "[tool.pdm]\nsource = 5\n",
    "a deep table": "[" + ".".join("a" * 3000) + "]\n",
    "a deep list": f"x = {'[' * 3000}{']' * 3000}\n",
    "a deep tool": "[tool.pdm.source." + ".".join("a" * 3000) + "]\nb = 1\n",
    "a deep marker": f'{PROJECT[:-3]}", "x; {"(" * 3000}os_name == \'a\'{")" * 3000}"]\n',
}


def test_wrong_pyproject_value_types_cause_no_traceback(here):
    for form, text in WRONG_TYPES.items():
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


def test_hook_does_not_overwrite_a_concurrent_edit(here, stand_in, tmp_path):
    file = tmp_path / "uv.toml"
    respond = stand_in.torch.respond

    def editing(path, headers):
        file.write_text("# edited\n", "utf-8")
        return respond(path, headers)

    stand_in.torch.respond = editing
    file.write_text("# mine\n", "utf-8")

    done = here.having(UV_CONFIG_FILE=str(file)).run("hook", "uv")

    assert done.status == 2, done.err
    assert file.read_text("utf-8") == "# edited\n"
