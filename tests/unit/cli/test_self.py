"""The hint if the command is not on PATH."""

from gpuinstall.cli import main


def test_path_hint_is_omitted_with_json_or_quiet(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "/nowhere")

    for option in ("--json", "--json-events", "--quiet", "-q"):
        main._print_path_command(["probe", option])
    assert capsys.readouterr() == ("", "")
    main._print_path_command(["probe"])
    assert "PATH" in capsys.readouterr().err


def test_quiet_option_does_not_affect_next_command(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "/nowhere")
    main.run_command_line(["explain", "804", "--quiet"])
    main._print_path_command(["probe"])
    assert "PATH" in capsys.readouterr().err
