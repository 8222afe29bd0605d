"""What a node tells of itself right now: gauges for `/metrics`, and what each client costs."""

from nearcast.server.gateway import Gateway


def gauges(gateway: Gateway) -> dict[str, tuple[str, float]]:
    """What holds right now, for `/metrics`."""
    clients = [client for client in gateway.realm.clients if client is not None]
    active = sum(len(client.subscriptions) for client in clients)
    return {
        "clients": ("WebSocket connections that are open.", len(gateway.sessions)),
        "entities": ("Entities that have joined.", len(clients)),
        "subscriptions": ("Subscriptions in force.", active),
        "slow_clients": (
            "Clients for whom messages wait.", sum(session.paused for session in gateway.sessions)
        ),
        "waiting": ("Publications that wait for a flush.", gateway.realm.waiting),
        "queued_bytes": ("Bytes that wait in the queues of all clients.", gateway.queued),
        "held_clients": ("Clients of whom nothing is read for now.", gateway.paused_readers),
    }  # fmt: skip


def client_costs(gateway: Gateway) -> list[dict[str, str | int]]:
    """What each client has cost since it joined, the most expensive first."""
    found: list[dict[str, str | int]] = []
    for client in gateway.realm.clients:
        if client is not None and client.owner is None:
            session = gateway.session_of(client)
            account = gateway.realm.accounts.clients[client.slot]
            found.append(
                {
                    "entity": client.entity,
                    "name": client.name,
                    "publications": int(account["published"]),
                    "work_as_publisher": int(account["as_publisher"]),
                    "work_as_subscriber": int(account["as_subscriber"]),
                    "steps": sum(one.steps for one in client.subscriptions.values()),
                    "waiting": gateway.realm.publications_waiting(client),
                    "bytes_in": session.bytes_in if session else 0,
                    "bytes_out": session.bytes_out if session else 0,
                }
            )
    found.sort(key=lambda one: (_work(one), one["entity"]), reverse=True)
    return found


def _work(cost: dict[str, str | int]) -> int:
    return int(cost["work_as_publisher"]) + int(cost["work_as_subscriber"])
