"""Simulated teacher servers for `benchmarks.fleet`: they answer, refuse, fail, cut connections and go down.

A server processes each of its places at the same speed, however many are in use. The event loop's clock jumps to the next event
instead of waiting, so hours take seconds. A program must therefore wait with asyncio only and read no other clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import math
import random
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock


@dataclass(frozen=True, slots=True)
class Faults:
    """Shares of requests that are refused (429 with ``Retry-After``), fail (500) or lose their connection at a random time, and
    the outage of one server."""

    busy: float = 0.0
    broken: float = 0.0
    dropped: float = 0.0
    retry_after: float = 5.0
    dead_from: float = math.inf
    dead_for: float = 0.0

    @property
    def answered(self) -> float:
        """Share of requests that are answered, apart from outages."""
        return 1.0 - self.busy - self.broken - self.dropped


@dataclass(frozen=True, slots=True)
class Pace:
    """Time of an answer: a log-normal number of tokens at a fixed rate, after the time to the first token."""

    tokens: float = 194.8
    spread: float = 0.5
    cap: int = 4096
    a_second: float = 30.0
    first: float = 0.5

    def draw(self, chance: random.Random) -> int:
        """Tokens of an answer."""
        middle = math.log(self.tokens) - self.spread**2 / 2
        return max(1, min(self.cap, round(chance.lognormvariate(middle, self.spread))))

    def seconds(self, tokens: int) -> float:
        """Seconds at a place."""
        return self.first + tokens / self.a_second


@dataclass
class Tally:
    """Counts over the servers of a fleet."""

    asked: int = 0
    answered: int = 0
    busy: int = 0
    broken: int = 0
    dropped: int = 0
    refused: int = 0
    """Calls to the server that is down."""
    cut: int = 0
    """Requests that an outage cut."""
    tokens: int = 0
    seconds: float = 0.0
    """Seconds of busy places, including wasted work."""
    keys: dict[int, int] = field(default_factory=dict)
    """How often each question was answered, by its seed."""

    @property
    def wasted(self) -> int:
        """Requests without an answer."""
        return self.asked - self.answered


class Server:
    """One server, as a client of an OpenAI-compatible endpoint sees it."""

    def __init__(self, name: str, pace: Pace, faults: Faults, mortal: bool, clock: Callable[[], float], tally: Tally) -> None:
        """``mortal``: whether it is the one that goes down."""
        self.pace, self.faults, self.clock, self.tally = pace, faults, clock, tally
        self.death = (faults.dead_from, faults.dead_from + faults.dead_for) if mortal else (math.inf, math.inf)
        self.chance = random.Random(f"server {name}")
        self._http = _transport()

    async def chat_completion(self, messages: Any, *, model: str, seed: int, **_: Any) -> Any:
        """An answer, or one of the faults, after the time that it takes."""
        tally, faults = self.tally, self.faults
        tally.asked += 1
        if self.death[0] <= self.clock() < self.death[1]:
            tally.refused += 1
            raise self._http.ConnectError("connection refused")
        fate = self.chance.random()
        if fate < faults.busy:
            tally.busy += 1
            raise self._said(429, {"retry-after": f"{faults.retry_after:g}"})
        tokens = self.pace.draw(random.Random(seed))  # the same answer on every server
        seconds = self.pace.seconds(tokens)
        fate -= faults.busy
        if fate < faults.broken:
            tally.broken += 1
            await self._work(seconds * self.chance.random())
            raise self._said(500, {})
        if fate < faults.broken + faults.dropped:
            tally.dropped += 1
            await self._work(seconds * self.chance.random())
            raise self._http.ReadError("connection reset")
        await self._work(seconds)
        tally.answered += 1
        tally.tokens += tokens
        tally.keys[seed] = tally.keys.get(seed, 0) + 1
        message = SimpleNamespace(content=f"{seed}: {'Step 1: 1 + 1 = 2. ' * tokens}"[: 4 * tokens])  # four signs a token
        choice = SimpleNamespace(message=message, finish_reason="stop")
        return SimpleNamespace(choices=[choice], usage=SimpleNamespace(completion_tokens=tokens))

    async def _work(self, seconds: float) -> None:
        """Wait for the time of a request, or until the server goes down."""
        left = self.death[0] - self.clock()
        dies = 0 <= left < seconds
        self.tally.seconds += min(seconds, left) if dies else seconds
        await asyncio.sleep(left if dies else seconds)
        if dies:
            self.tally.cut += 1
            raise self._http.ReadError("connection reset")

    def _said(self, status: int, headers: Mapping[str, str]) -> Exception:
        from huggingface_hub.errors import HfHubHTTPError

        asked = self._http.Request("POST", "http://server/v1/chat/completions")
        return HfHubHTTPError(f"HTTP {status}", response=self._http.Response(status, headers=dict(headers), request=asked))


def _transport() -> Any:
    """The client's HTTP library, under either of its names."""
    from huggingface_hub.errors import HfHubHTTPError

    names = (base.__module__.partition(".")[0] for base in HfHubHTTPError.__mro__)
    return importlib.import_module(next(name for name in names if name.startswith("httpx")))


def connecting(servers: Mapping[str, Server]) -> Callable[..., Any]:
    """A replacement of `cirf.endpoints.calls.connect`: connections to simulated servers, by their URL."""
    from cirf.endpoints.calls import Connection

    @contextlib.asynccontextmanager
    async def connect(endpoint: Any, timeout: float) -> AsyncIterator[Any]:
        yield Connection(endpoint.url, servers[endpoint.url])

    return connect


class Clock:
    """Virtual seconds since the start."""

    def __init__(self) -> None:
        """Start at 0."""
        self.now = 0.0

    def __call__(self) -> float:
        """The current time."""
        return self.now


class _Jumping(selectors.DefaultSelector):
    """A selector that advances the clock instead of waiting."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("deadlock: nothing is scheduled")
        if not ready and timeout is not None:
            self._clock.now += timeout
        return ready


class Loop(asyncio.SelectorEventLoop):
    """An event loop on a virtual clock."""

    def __init__(self, clock: Clock) -> None:
        """Start with a clock."""
        super().__init__(_Jumping(clock))
        self._clock = clock

    def time(self) -> float:
        """Seconds."""
        return self._clock.now


@contextlib.contextmanager
def jumping(clock: Clock, *modules: ModuleType) -> Iterator[None]:
    """Inside the context, ``asyncio.run`` and ``time.monotonic`` of the given modules use ``clock``. These modules must use
    nothing else of ``time``."""

    def run(main: Coroutine[Any, Any, Any]) -> Any:
        make: Callable[[], asyncio.AbstractEventLoop] = lambda: Loop(clock)  # noqa: E731
        with asyncio.Runner(loop_factory=make) as runner:
            return runner.run(main)

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(asyncio, "run", run))
        for module in modules:
            stack.enter_context(mock.patch.object(module, "time", SimpleNamespace(monotonic=clock)))
        yield
