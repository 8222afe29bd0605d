"""Inboxes against a plain list."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.client.inbox import Inbox


@given(st.lists(st.one_of(st.integers(), st.none()), max_size=30), st.integers(1, 5))
def test_an_inbox_keeps_the_newest_and_counts_the_rest(acts: list[int | None], size: int) -> None:
    """Against a plain list; None takes one out."""

    async def story() -> None:
        inbox: Inbox[int] = Inbox(size)
        kept: list[int] = []
        dropped = 0
        for act in acts:
            if act is None and kept:
                assert await anext(inbox) == kept.pop(0)
            elif act is not None:
                inbox.put(act)
                kept.append(act)
                dropped += len(kept) > size
                kept = kept[-size:]
            assert (len(inbox), inbox.dropped) == (len(kept), dropped)
        inbox.end(None)
        assert [item async for item in inbox] == kept

    asyncio.run(story())


def test_an_inbox_holds_at_least_one() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Inbox(0)
