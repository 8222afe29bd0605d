"""Bounded queues of what has arrived, and the memory that drops duplicates."""

import asyncio
from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Inbox(Generic[Item]):
    """An asynchronous iterator over what arrives. When full, it drops and counts the oldest."""

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"an inbox holds at least one item, not {size}")
        self.size = size
        self.dropped = 0
        self._items: deque[Item] = deque()
        self._arrived = asyncio.Event()
        self._ended = False
        self._why: Exception | None = None

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item) -> None:
        if len(self._items) == self.size:
            self._items.popleft()
            self.dropped += 1
        self._items.append(item)
        self._arrived.set()

    def end(self, why: Exception | None) -> None:
        """Nothing more arrives. Iterations take what is left, then end or raise `why`."""
        if not self._ended:
            self._ended, self._why = True, why
            self._arrived.set()

    def __aiter__(self) -> "Inbox[Item]":
        return self

    async def __anext__(self) -> Item:
        while not self._items:
            if self._ended:
                raise self._why or StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        return self._items.popleft()


class RecentPublications:
    """The last publications received and for which subscriptions: `size` to 2 × `size` of them."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._newer: dict[int, list[int]] = {}
        self._older: dict[int, list[int]] = {}

    def add(self, publication: int, to: list[int]) -> tuple[list[int], bool]:
        """The subscriptions for which it is new, and whether it was received before."""
        had = self._newer.get(publication) or self._older.get(publication)
        if had is None:
            if len(self._newer) >= self._size:
                self._older, self._newer = self._newer, {}
            self._newer[publication] = to
            return to, False
        fresh = [number for number in to if number not in had]
        if fresh:
            self._newer[publication] = had + fresh
        return fresh, True
