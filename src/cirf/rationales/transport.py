"""What is let in from a server that is asked: no redirect to another one, and no more than an answer can be."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from cirf.errors import CirfError

LONGEST = 2**24
"""Bytes of a body; an answer of 100,000 tokens is not a tenth of it."""
LONGEST_ENCODED = 2**18
"""Bytes of a compressed body, which may hold a thousand times as much."""


class TooLong(Exception):
    """A body that is longer than any answer."""


class Elsewhere(Exception):
    """A redirect, and where it leads."""


async def guard(client: Any) -> Any:
    """The client's own session, made so that it follows no redirect and reads no endless body; entered with the client.

    What is sent with it raises ``Elsewhere`` or ``TooLong``.
    """
    from huggingface_hub import get_async_session  # a user's own, with their proxies, where they have set one

    if not hasattr(client, "_async_client"):
        raise CirfError("this huggingface-hub keeps its connection elsewhere; install the one that constraints.txt names")
    session = get_async_session()
    session.follow_redirects = False
    session.headers["Accept-Encoding"] = "identity"
    hooks = session.event_hooks
    session.event_hooks = {**hooks, "response": [_measured, *hooks.get("response", ())]}
    client._async_client = await client.exit_stack.enter_async_context(session)
    return session


async def _measured(response: Any) -> None:
    """Have a response stop where its body is too long, before others read it, and one that leads elsewhere at once."""
    if response.is_redirect:
        raise Elsewhere(response.headers.get("location", "nowhere"))
    encoded = response.headers.get("content-encoding", "identity") != "identity"
    response.stream = _measuring(response.stream, LONGEST_ENCODED if encoded else LONGEST)


def _measuring(stream: Any, most: int) -> Any:
    kind = next(base for base in type(stream).__mro__ if base.__name__ == "AsyncByteStream")

    class Measured(kind):  # type: ignore[misc, valid-type]
        """The stream, up to a number of bytes."""

        async def __aiter__(self) -> AsyncIterator[bytes]:
            read = 0
            async for part in stream:
                read += len(part)
                if read > most:
                    raise TooLong(f"a body of more than {most:,} bytes")
                yield part

        async def aclose(self) -> None:
            await stream.aclose()

    return Measured()
