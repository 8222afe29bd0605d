"""What a person is told who waits."""

import pytest
from numba.core import event

from nearcast.cli.main import main
from nearcast.cli.progress import COMPILING, telling_of_compilation


def compile_something() -> None:
    """Only what numba says when it compiles: that takes half a second for the smallest kernel."""
    with event.trigger_event("numba:compile", data={}):
        pass


def test_that_kernels_are_compiled_is_told_in_one_line_when_it_begins_and_only_then(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with telling_of_compilation():
        assert capsys.readouterr().err == ""
        with event.trigger_event("numba:compile", data={}):
            assert capsys.readouterr().err == COMPILING
        compile_something()
    compile_something()
    assert capsys.readouterr().err == ""
    assert COMPILING.count("\n") == 1


@pytest.mark.parametrize(
    "command", [["node", "--port", "0"], ["up", "--port", "0"], ["peer", "--overlay", "von"]]
)
def test_commands_that_serve_tell_of_it(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def serve(*_: object) -> None:
        compile_something()

    monkeypatch.setattr("nearcast.server.server.serve", serve)
    monkeypatch.setattr("nearcast.monitor.server.run_until_signal", serve)
    monkeypatch.setattr("nearcast.peer.peer.run_peer_process", serve)
    assert main(command) == 0
    assert capsys.readouterr().err == COMPILING
