"""Exact joins in space and time, fence events, and the quality of deliveries, on any DataFrames.

    from nearcast.spark import AreaColumns, PointColumns, spatial_join

    pairs = spatial_join(
        shops, visits,
        AreaColumns(keys="shop", radius="reach"),
        PointColumns(keys="visit"),
    )

`spatial_join` finds which points are in which areas, `geofence` who entered and left which area,
`judge` compares a log of deliveries with those that there should have been. All take DataFrames of
Spark, classic or Connect, need no settings, and return DataFrames. This module needs the extra
`spark`: pip install 'nearcast[spark]'.
"""

from nearcast.errors import ColumnsError
from nearcast.extras import missing

try:
    from nearcast.spark.columns import AreaColumns, PointColumns
    from nearcast.spark.geofence import geofence
    from nearcast.spark.judge import Judgement, judge
    from nearcast.spark.spatial_join import spatial_join
except ModuleNotFoundError as why:
    if missing(why) is None:
        raise
    raise ImportError(
        f"nearcast.spark needs {why.name}, which is not installed: pip install 'nearcast[spark]'",
        name=why.name,
    ) from None

__all__ = [
    "AreaColumns",
    "ColumnsError",
    "Judgement",
    "PointColumns",
    "geofence",
    "judge",
    "spatial_join",
]
