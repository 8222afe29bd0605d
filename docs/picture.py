"""Draw one moment of a trace: all entities, and the subscribers of one publication.

Run: python docs/picture.py TRACE OUT.png
"""

import sys

import matplotlib.pyplot as plt
import pyarrow.compute as pc
from matplotlib.patches import Circle

from nearcast.trace.reader import read, scenario


def main(trace: str, out: str) -> None:
    positions = read(trace, "positions")
    last = pc.max(positions["t"]).as_py()
    places = {
        row["node"]: (row["x"], row["y"])
        for row in positions.filter(pc.equal(positions["t"], last)).to_pylist()
    }
    publications = read(trace, "publications")
    recent = publications.filter(pc.greater_equal(publications["t"], last))
    by_number = {row["publication"]: row for row in recent.to_pylist()}
    subscribers: dict[int, list[int]] = {}
    for row in read(trace, "deliveries").to_pylist():
        if row["publication"] in by_number:
            subscribers.setdefault(row["publication"], []).append(row["node"])
    typical = sorted(subscribers, key=lambda publication: len(subscribers[publication]))[-10]
    source = by_number[typical]

    settings = scenario(trace)["settings"]
    figure, axes = plt.subplots(figsize=(8, 8), dpi=110)
    axes.set_facecolor("#10141c")
    axes.scatter(*zip(*places.values(), strict=True), s=5, color="#5b7fa6", linewidths=0)
    for node in subscribers[typical]:
        x, y = places[node]
        axes.plot([source["x"], x], [source["y"], y], color="#f2b84b", lw=0.4, alpha=0.7)
        axes.add_patch(
            Circle((x, y), settings["radius"], fill=False, ec="#f2b84b", lw=0.3, alpha=0.25)
        )
    axes.scatter([source["x"]], [source["y"]], s=60, color="#ff5d5d", zorder=3)
    axes.set_title(
        f"One publication (red) of {len(places):,} entities, and the {len(subscribers[typical])} "
        "whose area it touched", fontsize=11,
    )  # fmt: skip
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    figure.tight_layout()
    figure.savefig(out)


if __name__ == "__main__":
    main(*sys.argv[1:3])
