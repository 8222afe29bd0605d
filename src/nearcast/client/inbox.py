"""What has arrived: it waits to be taken, bounded, and is known again should it come twice."""

import asyncio
from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Inbox(Generic[Item]):
    """An asynchronous iterator. When it is full, the oldest item goes and is counted."""

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"an inbox holds at least one item, not {size}")
        self.size = size
        self.dropped = 0
        self._items: deque[Item] = deque()
        self._news = asyncio.Event()
        self._ended = False
        self._why: Exception | None = None

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item) -> None:
        if len(self._items) == self.size:
            self._items.popleft()
            self.dropped += 1
        self._items.append(item)
        self._news.set()

    def end(self, why: Exception | None) -> None:
        """Nothing more comes. Whoever iterates takes what is left, and then ends, or gets `why`."""
        if not self._ended:
            self._ended, self._why = True, why
            self._news.set()

    def __aiter__(self) -> "Inbox[Item]":
        return self

    async def __anext__(self) -> Item:
        while not self._items:
            if self._ended:
                raise self._why or StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._items.popleft()


class RecentPublications:
    """What was heard lately, and for whom: the last `size` publications, and up to as many more."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._young: dict[int, list[int]] = {}
        self._old: dict[int, list[int]] = {}

    def new(self, publication: int, to: list[int]) -> tuple[list[int], bool]:
        """For whom it is new, and whether it was heard at all."""
        had = self._young.get(publication) or self._old.get(publication)
        if had is None:
            if len(self._young) >= self._size:
                self._old, self._young = self._young, {}
            self._young[publication] = to
            return to, False
        fresh = [number for number in to if number not in had]
        if fresh:
            self._young[publication] = had + fresh
        return fresh, True
