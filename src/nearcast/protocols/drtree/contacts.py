"""Through whom a member joins the tree, and when."""

from nearcast.protocols.contacts import Contacts
from nearcast.space.motion import Time


class MemberContacts(Contacts):
    """The addresses of members that are in the tree, and a queue for those who join.

    Members that join at the same time wait in a queue, which moves faster as the tree grows: in one
    period e times as many join as are in the tree. A request is routed by boxes, which are correct
    only some messages after a split. So most of the tree must be older than the requests under way.
    With a period of 0 there is no queue: requests go by boxes that are not correct yet.
    """

    def __init__(self, period: Time) -> None:
        super().__init__()
        self._period = period
        self._next_turn: Time = 0
        self._queued = 0  # or in the tree

    def join_delay(self, now: Time) -> Time:
        """How long a member waits before it joins; not at all if the queue is empty."""
        if now > self._next_turn:
            self._next_turn, self._queued = now, len(self)
        delay = self._next_turn - now
        self._queued += 1
        self._next_turn += self._period // self._queued
        return delay
