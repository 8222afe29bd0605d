"""Bounded queues of what has arrived."""

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
        if not self._items:  # only then may somebody wait
            self._arrived.set()
        elif len(self._items) == self.size:
            self._items.popleft()
            self.dropped += 1
        self._items.append(item)

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
