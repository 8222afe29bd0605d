"""Whether clients and servers of a simulated cluster agree who is where and who owns what."""

from collections.abc import Iterable, Sequence

from nearcast.client_protocol.messages import EntityState
from nearcast.model.subscription import NodeId, SubscriptionId
from nearcast.protocols.voronoi.vso.messages import Record
from nearcast.service.cluster.scaling import Role
from nearcast.sim.cluster.client_host import ClientHost
from nearcast.sim.cluster.server_host import ServerHost
from nearcast.space.earth_shapes import earth_point
from nearcast.space.shapes import Shape, point

SHOWN = 5  # examples in a message


def disagreement(clients: Iterable[ClientHost], servers: Iterable[ServerHost]) -> str | None:
    """What is wrong at this moment with clients, owners or states; None: all is well. While
    clients are handed over, something is."""
    present, servers = [client for client in clients if client.alive], list(servers)
    return (
        _misplaced_clients(present, servers)
        or _lost_subscriptions(present, servers)
        or _wrong_owners(servers)
        or _wrong_states(present, servers)
        or _wrong_roles(servers)
    )


def wrong_presence(clients: Iterable[ClientHost], servers: Iterable[ServerHost]) -> str | None:
    """Clients that watch know exactly who is in their areas. Areas must stand still."""
    hosts = {client.entity: client for client in clients if client.alive and client.watches}
    watching = [
        (server, client, hosts[client.entity])
        for server in servers
        for client in server.realm.clients
        if client is not None and client.entity in hosts
    ]
    for server, client, host in watching:
        others = [state for state in server.states() if state.entity != client.entity]
        for active in client.subscriptions.values():
            region = active.subscription.region
            present = {
                state.entity
                for state in others
                if region.touches(state_place(state), server.realm.now)
            }
            known = set(host.core.subscriptions[active.number].inside)
            if known != present:
                return f"{host.name} believes that {known} are in its area, where {present} are"
    return None


def state_place(state: EntityState) -> Shape:
    """Where the state is, as a point."""
    if state.lon is not None and state.lat is not None:
        return earth_point(state.lon, state.lat, state.alt)
    return point(state.x or 0.0, state.y or 0.0, state.z)


def _misplaced_clients(present: Sequence[ClientHost], servers: Sequence[ServerHost]) -> str | None:
    """Every client is served, by the server at which it believes to be and by no other."""
    lost = [client.name for client in present if not client.is_served]
    if lost:
        return f"{len(lost)} clients are not served: {lost[:SHOWN]}"
    believed = {
        (client.entity, client.connection.server.id)
        for client in present
        if client.connection is not None
    }
    there = {
        (client.entity, server.id)
        for server in servers
        for client in server.realm.clients
        if client is not None
    }
    if believed == there:
        return None
    return (
        "clients are not where they believe to be (entity, server):"
        f" {sorted(believed - there)[:SHOWN]};"
        f" servers have others: {sorted(there - believed)[:SHOWN]}"
    )


def _lost_subscriptions(present: Sequence[ClientHost], servers: Sequence[ServerHost]) -> str | None:
    """The server of a client knows what its application wants to hear, and nothing else."""
    known = {
        client.entity: set(client.subscriptions)
        for server in servers
        for client in server.realm.clients
        if client is not None
    }
    for client in present:
        wanted, found = client.wanted, known[client.entity]
        if wanted != found:
            return f"{client.name} wants subscriptions {wanted}, its server knows {found}"
    return None


def _wrong_owners(servers: Sequence[ServerHost]) -> str | None:
    """One site owns each subscription, and the server of its client knows which."""
    owners: dict[SubscriptionId, list[NodeId]] = {}
    for server in servers:
        for record in owned_records(server):
            owners.setdefault(record.id, []).append(server.id)
    wrong = []
    for server in servers:
        for subscription, mine in server.service.cluster.registry.mine.items():
            found = owners.pop(subscription, [])
            if found != [mine.owner]:
                wrong.append((subscription, found, mine.owner))
    if wrong:
        return (
            f"{len(wrong)} subscriptions have no owner or several, or their server believes in"
            f" another (subscription, owners, believed): {wrong[:SHOWN]}"
        )
    if owners:
        return f"{len(owners)} records are nobody's: {sorted(owners.items())[:SHOWN]}"
    return None


def _wrong_states(present: Sequence[ClientHost], servers: Sequence[ServerHost]) -> str | None:
    """Every server lists exactly the states of those who live and retain, as they are now; and all
    list the same states that have outlived their clients."""
    expected = {client.name: client.state for client in present if client.state is not None}
    outlived: dict[str, tuple[float | None, float | None]] | None = None
    for server in servers:
        states = server.states()
        places = {one.name: (one.x, one.y) for one in states}
        if any(client.ttl is not None for client in present):
            here = {name: places.pop(name) for name in sorted(places.keys() - expected.keys())}
            outlived = here if outlived is None else outlived
            if here != outlived:
                differ = sorted(here.items() ^ outlived.items())[:SHOWN]
                return f"servers list different states of those who have left: {differ}"
            states = [one for one in states if one.name in places]
        if len(states) != len(expected) or places.keys() != expected.keys():
            absent = sorted(expected.keys() - places.keys())[:SHOWN]
            ghosts = sorted(places.keys() - expected.keys())[:SHOWN]
            return (
                f"server {server.id} lists {len(states)} of {len(expected)} states:"
                f" {absent} are absent, {ghosts} have no client"
            )
        if places != expected:
            old = sorted(name for name in places if places[name] != expected[name])[:SHOWN]
            return f"server {server.id} lists former states of {old}"
    return None


def _wrong_roles(servers: Sequence[ServerHost]) -> str | None:
    """Somebody serves, and those who stand by serve nobody."""
    if not any(server.role is Role.ACTIVE for server in servers):
        return "no server is active"
    for server in servers:
        clients = [client for client in server.realm.clients if client is not None]
        if server.role is Role.STANDING_BY and clients:
            return f"server {server.id} stands by, and serves {len(clients)} clients"
    return None


def owned_records(server: ServerHost) -> list[Record]:
    """The records that the site of this server owns."""
    records = server.service.cluster.site.ownership.records
    return records.of(records.owned_by(server.id))
