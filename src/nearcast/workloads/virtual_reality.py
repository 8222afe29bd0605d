"""[Lehn] virtual reality: participants in a square see each other up to a distance.

Places are uniform in a square with borders, and vision ends at 0.245 of its side: then the mean
fan-out is 7 with 50 participants and 30 with 200, and the transitivity of who sees whom is 0.64
however many there are. Each says 512 bytes per second (section V). The paper's
participants stand; here some may walk, as in the random waypoint, and interests change meanwhile.
"""

from msgspec import Struct

from nearcast.field_checks import between
from nearcast.model.subscription import NodeId
from nearcast.scenario import stream
from nearcast.space.motion import Time
from nearcast.space.shapes import Vector, ball
from nearcast.workloads.cube import Cube
from nearcast.workloads.stationary import StationaryEntity
from nearcast.workloads.walker import WalkerParameters, WalkerWorkload
from nearcast.workloads.workload import Life, Workload, first_id, fits_identifiers


class Parameters(WalkerParameters, frozen=True, kw_only=True):
    """See `WalkerParameters` for the unit and range of what all walkers share."""

    size: float = 1000.0
    radius: float = 245.0
    speed: float = 10.0
    rate: float = 8.0
    # Share of participants that walk, 0 to 1; the paper has 0.
    walking: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        between("walking", self.walking, 0, 1)


class VirtualReality(Struct, frozen=True):
    """Participants in a square, some of which may walk."""

    entities: int
    seed: int
    walkers: WalkerWorkload
    share: float

    @property
    def world(self) -> tuple[Vector, Vector]:
        return self.walkers.world

    def life(self, entity: NodeId, stay: int, begins: Time) -> Life:
        rng = stream(self.seed, "virtual-reality", "participant", entity, stay)
        parameters = self.walkers.parameters
        place, phase = Cube(parameters.size, parameters.dims).anywhere(rng), 1 - rng.random()
        if rng.random() < self.share:
            return self.walkers.life(entity, stay, begins)
        wanted = (ball(*place, parameters.radius),)
        payload = self.walkers.payload
        return StationaryEntity(
            first_id(entity, stay), begins, place, wanted, parameters.rate, phase, payload
        )


def make(parameters: Parameters, entities: int, seconds: float, seed: int) -> Workload:
    fits_identifiers(parameters.rate * seconds)
    payload = bytes(parameters.payload)
    walkers = WalkerWorkload("virtual-reality", entities, seed, parameters, 0.0, payload)
    return VirtualReality(entities, seed, walkers, parameters.walking)
