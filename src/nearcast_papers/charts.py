"""Charts of the papers' figures."""

from collections.abc import Sequence

from nearcast.pipeline.report.charts import Axis, LegendKey, Series, chart
from nearcast.pipeline.report.plots import Plot


def legend_chart(name: str, title: str, x: Axis, y: Axis, series: Sequence[Series]) -> list[Plot]:
    """A chart in which every series has a legend key; none if no series has values."""
    shown = [one for one in series if len(one.x)]
    if not shown:
        return []
    keys = [LegendKey(one.name, one.style, one.dash) for one in shown]
    return [chart(name, title, x, y, shown, keys)]
