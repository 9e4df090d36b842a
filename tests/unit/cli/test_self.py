"""The command on PATH: who is told of it."""

from gpuinstall.cli import main


def test_where_the_command_lies_is_said_to_people_alone(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "/nowhere")

    for option in ("--json", "--json-events", "--quiet", "-q"):
        main._show_path(["probe", option])
    assert capsys.readouterr() == ("", "")
    main._show_path(["probe"])
    assert "PATH" in capsys.readouterr().err
