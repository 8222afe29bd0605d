"""Two sites that own a subscription in one epoch, as after claims by a stale copy: one gives way,
and meanwhile nobody misses or receives twice anything."""

from msgspec.structs import replace

from nearcast.sim.cluster.agreement import owned_records
from support.cluster_scripts import ClusterScript
from support.examples import crossed


@crossed("claims, walks", [1, 2], [False, True])
def test_one_of_two_owners_in_one_epoch_gives_way_and_nothing_is_missed(
    claims: int, walks: bool
) -> None:
    story = ClusterScript(1)
    world, servers = story.world, story.servers
    for server in servers:
        story.client(server, *server.service.cluster.site.place, retains=False)
    hearer = story.client(servers[0], *servers[0].service.cluster.site.place, retains=False)
    story.run(3.0)
    world.faults.add("claimed by mistake", world.now, world.now)
    (record,) = (one for one in owned_records(servers[0]) if one.client == hearer.host.entity)
    mistaken = servers[claims]
    mistaken.service.cluster.site.ownership._own(replace(record, owner=mistaken.id))
    assert record.id in {one.id for one in owned_records(mistaken)}
    for _ in range(60):
        if walks:
            hearer.walk(hearer.x + 1.0, hearer.y)
        for client in story.clients[:3]:
            client.publish(hearer.x + 5.0, hearer.y)
        story.run(0.1)
    owners = [s.id for s in servers if record.id in {one.id for one in owned_records(s)}]
    assert len(owners) == 1
    assert story.check(world.begins) > 180
