"""[VSO]: "VSO: Self-organizing Spatial Publish Subscribe"."""

from nearcast.pipeline.jobs import delivery, traffic
from nearcast_papers.readings import make_paper
from nearcast_papers.voronoi import churn, figures, jobs, loads, structure
from nearcast_papers.voronoi.alternative_readings import READINGS
from nearcast_papers.voronoi.scenarios import scenarios

CAPTIONS = {
    "2": "Quad-tree against Voronoi partitioning, of 100 crowds; and how many steps greedy"
    " forwarding takes. Geometry alone, without a network.",
    "7": "Static 3 x 3 against dynamic partitioning with nine matchers and no insertion. In every"
    " second of the last third of a run: the average, busiest and idlest matcher; then their means"
    " over time. Bytes are those of our encoding. In the full form nodes say in every step where"
    " they are while that is measured and 5 s before, and in one of ten steps until then.",
    "8": "Discovery consistency while nodes join, while as many crash as join, and then:"
    " means of ten seconds. The paper prints curves without numbers; what its text says of the"
    " worst is drawn beside ours. The quick form's phases have 600, 600 and 300 steps instead of"
    " 1,000 each. The paper's gateway never crashes; in the last drawing it does as churn begins,"
    " and whoever follows it may.",
    "9": "Upload of matchers in our encoding, over the last third of a run, at most 25 s. The quick"
    " form says where a node is twice a second and stops at 200 nodes; the paper and the full form"
    " in each of ten steps a second, to 1,000 nodes. More than 200 do so only while they are"
    " measured and 5 s before, and in one of ten steps until then: matchers come as they would.",
    "10": "Download of clients, likewise.",
    "table": "Table I: matchers that the load calls in.",
    "areas": "What the paper left open: publications over areas. 100 nodes, nine matchers"
    " at first.",
    "candidates": "A deployment decision (III-A): may clients become matchers, or provisioned"
    " servers, or both? 50 nodes of which some crash and as many come. Clients: nobody is spared,"
    " as in the last drawing of figure 8. Servers: four that do not crash; both: two, and clients"
    " that help. A server takes 40 subscriptions, a client 20; the gateway calls the most capable.",
    "servers": "Two ways to match, with the same four servers and nodes. VSO: a client moves"
    " from owner to owner, and owners match. A cluster of `nearcast node`: a client keeps its"
    " connection until it is handed over, its home matches, and sites only say which homes"
    " may be concerned. Bytes are for each publication. In VSO it is made when its client sends it,"
    " in a cluster when its home has it, 100 ms later.",
    "tide": "What the paper left open: does the number of matchers follow a load that rises and"
    " falls? 30 nodes; 120 more come at 30 s, and as many crash at 150 s. Provisioned servers are"
    " the candidates.",
}
SHOWS = {
    "2": (1, 3),
    "7": (7, 8, 9, 10),
    "8": (11, 12, 13, 14, 16, 17, 18),
    "9": (20, 21, 22, 23, 24, 25, 26, 28),
    "10": (27, 28),
    "table": (19, 30),
    "tide": (31,),
}
DRAWINGS = {
    "2": figures.draw_regions,
    "7": figures.draw_nine_matchers,
    "8": figures.draw_churn,
    "9": figures.draw_uploads,
    "10": figures.draw_downloads,
    "table": figures.draw_table,
    "areas": figures.draw_areas,
    "candidates": figures.draw_candidates,
    "servers": figures.draw_servers,
    "tide": figures.draw_tide,
}
TITLES = {
    "table": "Table I",
    "areas": "Areas",
    "candidates": "Candidates",
    "servers": "Servers",
    "tide": "Tide",
}
ALL_CLAIMS = sorted((*structure.CLAIMS, *loads.CLAIMS, *churn.CLAIMS), key=lambda claim: claim.item)

PAPER = make_paper(
    "voronoi",
    "003",
    "VSO: self-organizing spatial publish/subscribe",
    scenarios,
    (
        delivery.delivery_totals,
        traffic.traffic_by_kind,
        jobs.bandwidth_by_node,
        jobs.matcher_bandwidth,
        jobs.population_by_second,
        jobs.consistency_by_second,
        jobs.owners_by_epoch,
        jobs.overloads,
        jobs.roles,
        jobs.publications_made,
        jobs.server_traffic,
    ),
    READINGS,
    ALL_CLAIMS,
    DRAWINGS,
    CAPTIONS,
    SHOWS,
    TITLES,
)
