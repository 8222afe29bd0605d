"""The commands and settings of an advice are accepted by our own parsers."""

import shlex
from pathlib import Path

import pytest
from msgspec.structs import replace

from nearcast.cli.common import split_setting
from nearcast.cli.main import parser
from nearcast.peer.peer import PeerOptions, parse_address
from nearcast.pipeline.advise.candidates import OverlayCandidate, make_candidates
from nearcast.pipeline.advise.deployment import make_deployment
from nearcast.pipeline.advise.world import WorldFacts
from nearcast.server.config import load_settings
from support.advice import FACTS

DEEP = replace(FACTS, high=(1000.0, 900.0, 50.0), has_filters=True, radius=3e6, entities=9000)
KNOWN = [
    pytest.param(each, facts, id=f"{each.name}-{place}")
    for place, facts in enumerate((FACTS, DEEP))
    for each in make_candidates(facts, 512.0, 30.0)
]


@pytest.mark.parametrize(("candidate", "facts"), KNOWN)
def test_every_candidate_can_be_run_as_the_advice_says(
    candidate: OverlayCandidate, facts: WorldFacts, tmp_path: Path
) -> None:
    how = make_deployment(candidate, facts, 10.0)
    file = tmp_path / "nearcast.toml"
    file.write_text(how.settings_file)
    settings = load_settings(file, {})
    assert settings.limits.clients >= facts.entities
    assert settings.limits.extent >= facts.radius or candidate.protocol not in (
        "cluster", "client-server",
    )  # fmt: skip
    for command in how.commands:
        program, *words = shlex.split(command)
        assert program == "nearcast"
        arguments = parser().parse_args(words)
        if arguments.command == "peer":
            options = PeerOptions(
                overlay=arguments.overlay,
                join=parse_address(arguments.join) if arguments.join else None,
                host=arguments.host, port=arguments.port, serve=arguments.serve,
                settings=dict(map(split_setting, arguments.set)),
            )  # fmt: skip
            if arguments.overlay:
                set_there = options.parameters
                for name, value in candidate.settings.items():
                    assert getattr(set_there, name) == value
        else:
            assert arguments.command == "node"
            assert (arguments.config is not None) == bool(how.settings_file)


def test_settings_are_written_only_where_the_defaults_do_not_suffice() -> None:
    node = next(each for each in make_candidates(FACTS, 512.0, 30.0) if each.name == "node")
    assert make_deployment(node, FACTS, 1.0).settings_file == ""
    earth = replace(FACTS, geometry="earth", radius=3e6)
    assert make_deployment(node, earth, 1.0).settings_file == 'geometry = "earth"\n'
    von = next(each for each in make_candidates(FACTS, 512.0, 30.0) if each.protocol == "von")
    begun = ["--geometry earth" in make_deployment(von, facts, 1.0).commands[0]
             for facts in (FACTS, earth)]  # fmt: skip
    assert begun == [False, True]
    text = make_deployment(node, DEEP, 10.0).settings_file
    assert "clients = 180000" in text and "extent = 6000000.0" in text and "payload" not in text
