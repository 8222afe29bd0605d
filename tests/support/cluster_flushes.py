"""Flushes of a node, and what other nodes' clients want: for tests of a cluster's parts."""

import numpy as np

from nearcast.client_protocol import messages
from nearcast.matching.matcher import Batch
from nearcast.model.subscription import NodeId, Subscription
from nearcast.protocols.voronoi.vso.messages import Record
from nearcast.service.client_state import AcceptedPublication, ClientState
from nearcast.service.cluster.recent_history import PastFlush
from nearcast.service.cluster.remote_subscriptions import (
    RemoteSubscriptions,
    first_number,
    record_of,
)
from nearcast.service.retained_state import PUBLICATION_DTYPE, pack_publication, publication_batch
from nearcast.space.motion import Moving, Time
from nearcast.space.shapes import disc

ME, THERE, ELSEWHERE = 1, 2, 3  # nodes


def accepted_publications(
    *made: tuple[Time, float, float],
) -> tuple[list[AcceptedPublication], Batch]:
    """Publications of points, each with its moment."""
    client = ClientState(0, 9, "", messages.JSON)
    accepted = [
        AcceptedPublication(
            client,
            first_number(ME) + 1000 * t + i,
            0,
            messages.PublishRequest(x, y),
            messages.JSON,
            t,
        )
        for i, (t, x, y) in enumerate(made)
    ]
    rows = bytearray().join(
        pack_publication(9, 9, 0, 0, 0, 0, 0, x, y, 0.0, 0.0, 0.0, 0.0) for _, x, y in made
    )
    publications = publication_batch(0, np.frombuffer(rows, PUBLICATION_DTYPE), accepted, None)
    publications.t[:] = [t for t, _, _ in made]
    return accepted, publications


def passed(t: Time, *made: tuple[Time, float, float]) -> PastFlush:
    accepted, publications = accepted_publications(*made)
    none = np.zeros(0, np.int64)
    ids = np.array([one.id for one in accepted], np.int64)
    return PastFlush(t, accepted, ids, publications, none)


def wanted(number: int, x: float, r: float = 10.0) -> Subscription:
    return Subscription(number, 7, Moving(disc(x, 0, r)))


def put(
    remote_subscriptions: RemoteSubscriptions,
    now: Time,
    number: int,
    x: float,
    since: Time,
    home: NodeId,
) -> Record:
    record = record_of(home, wanted(number, x), since, 0)
    remote_subscriptions.put(now, record, home)
    return record


def homes(
    remote_subscriptions: RemoteSubscriptions, *made: tuple[Time, float, float]
) -> list[tuple[int, NodeId]]:
    _, publications = accepted_publications(*made)
    found, whose = remote_subscriptions.match_homes(publications, np.arange(len(made)))
    return list(zip(found.tolist(), whose.tolist(), strict=True))
