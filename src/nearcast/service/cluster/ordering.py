"""Per-publisher ordering between nodes.

Links are FIFO, but consecutive publications of one publisher may take different routes: a publisher
that crosses a border publishes to another site, which may be faster; and a node is sent only what
its clients may want. The first publication of a publisher that goes to a node therefore carries
along the publisher's publications of the last two seconds which that node has not been sent. The
receiver decides which of them its clients want. So does a retained state, which goes to every node.
While all publications of a publisher go to a node, nothing has to be searched.
"""

from collections.abc import Iterator

import numpy as np

from nearcast.columns import grow
from nearcast.matching.matcher import Integers
from nearcast.model.subscription import NodeId
from nearcast.service.cluster.messages import CLIENTS_ONLY, MODES, PREVIOUS_OWNER, mode_of
from nearcast.service.cluster.recent_history import (
    COUNT_BITS,
    NOT_SENT,
    PastFlush,
    PublicationColumns,
    RecentHistory,
)
from nearcast.service.cluster.remote_subscriptions import block_of
from nearcast.space.motion import SECOND, Time

AGO: Time = 2 * SECOND  # older publications have arrived everywhere
NONE: Integers = np.zeros(0, np.int64)


class OutgoingPublications:
    """What is to be sent: for each node which publications, each with its mode and hops."""

    def __init__(self, columns: PublicationColumns) -> None:
        self._columns = columns
        self._parts: dict[NodeId, list[tuple[Integers, int]]] = {}

    def put(self, node: NodeId, rows: Integers, code: int) -> None:
        """Adds publications, but none that was sent there before or was published there."""
        if not len(rows):
            return
        sent, way = self._columns.sent_to(node), mode_of(code)
        if way == CLIENTS_ONLY:
            made_there = self._columns.ids[rows] >> COUNT_BITS == block_of(node)
            rows = rows[(sent[rows] == NOT_SENT) & ~made_there]
        elif way == PREVIOUS_OWNER:
            before = sent[rows]
            rows = rows[(before == NOT_SENT) | (before & MODES == CLIENTS_ONLY)]
        if len(rows):
            sent[rows] = code
            self._parts.setdefault(node, []).append((rows, code))

    def rows(self) -> Integers:
        """All that is to be sent to some node, in order."""
        several = [rows for parts in self._parts.values() for rows, _ in parts]
        return np.unique(np.concatenate(several)) if several else NONE

    def entries(self) -> Iterator[tuple[NodeId, bytes, Integers]]:
        """For each node, in the order of publication: codes and rows."""
        for node, parts in self._parts.items():
            rows = np.concatenate([rows for rows, _ in parts])
            codes = np.repeat([code for _, code in parts], [len(rows) for rows, _ in parts])
            order = np.lexsort((self._columns.ids[rows], self._columns.t[rows]))
            yield node, codes[order].astype(np.uint8).tobytes(), rows[order]


class PublisherOrdering:
    """Which nodes have been sent all recent publications of a publisher, as site or as home.

    Columns by a publisher's number (`RecentPublishers`) have the serial number of a flush, or 0. A
    number that is used again means somebody else; what is left in its columns is then older than
    all flushes in the history, so nothing is found for it.
    """

    def __init__(self, history: RecentHistory) -> None:
        self._flushes, self._publishers = history.flushes, history.publishers
        self._recent = history.columns
        self._last_flush: Integers = np.zeros(64, np.int64)  # the last flush that was routed
        # By node: the flush up to which it has been sent everything.
        self._sites: dict[NodeId, Integers] = {}
        self._homes: dict[NodeId, Integers] = {}

    def mark_sent(self, flush: PastFlush) -> None:
        """This flush has been routed."""
        self._last_flush = grow(self._last_flush, self._publishers.used)
        self._last_flush[self._recent.publishers[self._recent.rows(flush)]] = flush.serial

    def for_this_site(self, me: NodeId, flush: PastFlush, which: Integers) -> Integers:
        """What this site has to route with these: recent ones of their publishers, too."""
        whose, whole = self._publishers_and_all(flush, which)
        earlier = self._missing(self._sites, me, whose, flush)
        self._mark_complete(self._sites, me, whose, flush)
        return np.concatenate((earlier, whole))

    def add_for_site(
        self, outgoing: OutgoingPublications, site: NodeId, flush: PastFlush, chosen: dict[int, int]
    ) -> None:
        """These go to that site, each with its code."""
        which, codes = np.array([*chosen.items()], np.int64).T
        whose, whole = self._publishers_and_all(flush, which)
        outgoing.put(site, self._missing(self._sites, site, whose, flush), PREVIOUS_OWNER)
        for code in dict.fromkeys(chosen.values()):
            rows = self._recent.rows(flush).start + which[codes == code]
            outgoing.put(site, rows, code)
        outgoing.put(site, whole, PREVIOUS_OWNER)
        self._mark_complete(self._sites, site, whose, flush)
        self._mark_complete(self._homes, site, whose, flush)

    def add_for_home(
        self, outgoing: OutgoingPublications, home: NodeId, flush: PastFlush, chosen: Integers
    ) -> None:
        """These go to that home, whose clients may want them."""
        whose, whole = self._publishers_and_all(flush, chosen)
        earlier = self._missing(self._homes, home, whose, flush)
        outgoing.put(home, np.concatenate((earlier, whole)), CLIENTS_ONLY)
        self._mark_complete(self._homes, home, whose, flush)

    def add_missing(self, outgoing: OutgoingPublications, node: NodeId, entity: NodeId) -> None:
        """This publisher publishes there from now on: the site gets its recent publications."""
        number = self._publishers.number(entity)
        if number is not None:
            missing = self._missing(self._sites, node, np.array([number]), None)
            outgoing.put(node, missing, PREVIOUS_OWNER)

    def _column(self, columns: dict[NodeId, Integers], node: NodeId) -> Integers:
        """The column of this node, with room for all publishers."""
        column = columns.get(node, self._last_flush[:0])
        columns[node] = column = grow(column, self._publishers.used)
        return column

    def _missing(
        self, had: dict[NodeId, Integers], node: NodeId, whose: Integers, until: PastFlush | None
    ) -> Integers:
        """Rows of earlier publications of these publishers that the node has not been sent."""
        has = self._column(had, node)
        self._last_flush = last = grow(self._last_flush, self._publishers.used)
        lacking = whose[has[whose] != last[whose]]
        if not len(lacking) or not self._flushes:
            return NONE
        end = self._recent.rows(self._flushes[-1]).stop
        if until is not None:
            end = self._recent.rows(until).start
        oldest = (self._flushes[-1] if until is None else until).t - AGO
        first = self._recent.since(int(has[lacking].min()), oldest)
        wanted = np.zeros(len(last), np.bool_)
        wanted[lacking] = True
        found: Integers = first + np.flatnonzero(wanted[self._recent.publishers[first:end]])
        return found

    def _mark_complete(
        self, had: dict[NodeId, Integers], node: NodeId, whose: Integers, flush: PastFlush
    ) -> None:
        """The node has been sent all of theirs, up to this flush."""
        has = self._column(had, node)
        has[whose] = np.maximum(has[whose], flush.serial)

    def _publishers_and_all(self, flush: PastFlush, which: Integers) -> tuple[Integers, Integers]:
        """The publishers of these, and the rows of all their publications in this flush."""
        rows = self._recent.rows(flush)
        publishers = self._recent.publishers[rows]
        if len(which) == len(publishers):
            return publishers, np.arange(rows.start, rows.stop)
        wanted = np.zeros(self._publishers.used, np.bool_)
        wanted[publishers[which]] = True
        whole = np.flatnonzero(wanted[publishers])
        return publishers[whole], rows.start + whole
