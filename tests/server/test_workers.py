"""Every part is done once, by whichever thread; what fails is told."""

from threading import Barrier, get_ident

import pytest

from nearcast.server.workers import PART, Workers
from support.patience import PATIENCE_S


@pytest.mark.parametrize("size", [0, 1, PART, PART + 1, 10 * PART + 3])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_every_part_is_done_once(count: int, size: int) -> None:
    workers = Workers(count)
    done: list[int] = []
    workers.share(size, lambda first, last: done.extend(range(first, last)))
    workers.close()
    assert sorted(done) == list(range(size))


def test_several_threads_work_at_the_same_time() -> None:
    workers, together, threads = Workers(3), Barrier(3), set()

    def act(_first: int, _last: int) -> None:
        threads.add(get_ident())
        together.wait(PATIENCE_S)

    workers.share(3 * PART, act)
    workers.close()
    assert len(threads) == 3


@pytest.mark.parametrize("count", [1, 3])
def test_an_error_is_told(count: int) -> None:
    workers = Workers(count)
    with pytest.raises(OSError, match="of the part"):
        workers.share(PART * 4, _fail)
    workers.close()
    done: list[int] = []
    workers.share(PART * 4, lambda first, last: done.extend(range(first, last)))
    assert done == list(range(PART * 4)), "after it is closed it works alone"


def _fail(_first: int, _last: int) -> None:
    raise OSError("of the part")
