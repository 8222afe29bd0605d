"""The memory that drops duplicates."""


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
