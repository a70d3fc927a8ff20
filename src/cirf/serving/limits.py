"""The server's limits for one client and for all together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """``body``: most bytes of a request; ``prompt`` and ``answer``: most tokens of a conversation and of one answer;
    ``answers``: most answers to one question; ``batch``: most answers decoded together, and ``batch_tokens``: most tokens,
    padding and what is still to be written included, that those may hold (a request by itself always may); ``queue``: most
    answers that wait; ``requests``: most requests that are open at once; ``seconds``: longest time of a request, waiting
    included; ``slow``: seconds a client has to send its request, and to take what is sent to it; ``drain``: seconds that a server
    which is being stopped gives to what it is answering.
    """

    body: int = 256 * 1024
    prompt: int = 4096
    answer: int = 1024
    answers: int = 32
    batch: int = 32
    batch_tokens: int = 65536
    queue: int = 256
    requests: int = 512
    seconds: float = 120.0
    slow: float = 20.0
    drain: float = 30.0
