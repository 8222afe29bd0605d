"""Clients that wait shorter or longer than usual."""

from typing import Any

import pytest
from msgspec.structs import replace

from nearcast.client import client
from nearcast.client.effects import ClientParameters


def set_parameters(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> None:
    """Clients that are made from now on have these parameters."""
    monkeypatch.setattr(client, "PARAMETERS", replace(ClientParameters(), **changed))
