"""The engine: one thread that answers queued requests in batches.

Queued requests with the same model, temperature, nucleus and steering are decoded together, the oldest first; new ones wait for
the batch to end. Each row has its own cap, is streamed token by token, and ends when it is cancelled. A worked example: A and B
are greedy, C samples::

    waiting A, C, B     one batch of A and B, then one of C
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cirf.errors import CirfError
from cirf.lm.prompt import stop_ids
from cirf.serving.limits import Limits
from cirf.serving.model import ServedModel

if TYPE_CHECKING:
    from cirf.lm.decoding.trace_grammar import Steering

_log = logging.getLogger("cirf.serving")


@dataclass(frozen=True)
class BatchSettings:
    """The settings that all answers of one batch share; ``temperature`` 0 is greedy, ``steering`` ``None`` is none, and
    ``calculator``: whether there is one."""

    temperature: float = 0.0
    top_p: float = 1.0
    steering: Steering | None = None
    calculator: bool = False


@dataclass(eq=False)
class Job:
    """One request: ``count`` answers to one conversation.

    Set by the caller: ``prompt`` is rendered, ``ids`` its tokens, ``cap`` the most tokens of an answer (the end token included);
    ``changed`` is called from the engine's thread, with every token if ``streamed``, and always once all is finished. Set by the
    engine: the tokens of each answer (``made``), why each ended (``ends``: ``stop`` or ``length``, ``None``: not yet, or
    cancelled), when work on it began, gave its first token and ended (`time.perf_counter`), the answers in its batch, and the
    error, if any.
    """

    served: ServedModel
    prompt: str
    ids: list[int]
    how: BatchSettings
    cap: int
    seed: int = 0
    count: int = 1
    streamed: bool = False
    changed: Callable[[], None] = lambda: None
    cancelled: bool = False
    made: list[list[int]] = field(default_factory=list)
    ends: list[str | None] = field(default_factory=list)
    asked: float = field(default_factory=time.perf_counter)
    began: float | None = None
    first: float | None = None
    ended: float | None = None
    together: int = 0
    error: str | None = None

    @property
    def over(self) -> bool:
        return self.ended is not None

    def cancel(self) -> None:
        self.cancelled = True


class Busy(Exception):
    """The queue is full; ``after``: seconds until a retry may succeed."""

    def __init__(self, after: int) -> None:
        super().__init__(after)
        self.after = after


class Closing(Exception):
    """The engine is being stopped."""


class Engine:
    """Answers jobs in a separate thread from `start` to `stop`."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting: deque[Job] = deque()
        self._running: list[Job] = []
        self._changed = threading.Condition()
        self._closing = False
        self._pace = 1.0  # seconds of a batch, the last ones counting most
        self._thread = threading.Thread(target=self._work, name="cirf-engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Accept no more jobs, drop unanswered ones, and wait for the thread to end."""
        with self._changed:
            self._closing = True
            for job in (*self._waiting, *self._running):
                job.cancel()
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def submit(self, job: Job) -> None:
        """Have a job answered. `Busy` if the queue is full, `Closing` while the engine is being stopped."""
        with self._changed:
            if self._closing:
                raise Closing
            self._waiting = deque(one for one in self._waiting if not one.cancelled)
            if self.waiting + job.count > self._limits.queue:
                raise Busy(self.patience())
            self._waiting.append(job)
            self._changed.notify()

    @property
    def waiting(self) -> int:
        return sum(job.count for job in tuple(self._waiting) if not job.cancelled)

    @property
    def running(self) -> int:
        return sum(job.count for job in tuple(self._running) if not job.over)

    def patience(self) -> int:
        """Estimated seconds until the current queue is answered: 1 to 60."""
        batches = 1 + self.waiting / self._limits.batch
        return max(1, min(60, math.ceil(batches * self._pace)))

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                self._running = self._take()
                if self._closing and not self._running:
                    return
            if self._running:
                self._answer(self._running)
            self._running = []

    def _take(self) -> list[Job]:
        """The oldest job and those that can be answered with it; cancelled jobs are removed."""
        for job in self._waiting:
            if job.cancelled:
                _end(job)
        left = deque(job for job in self._waiting if not job.over)
        taken: list[Job] = []
        for job in left:
            if not taken or (job.served is taken[0].served and job.how == taken[0].how and self._fits([*taken, job])):
                taken.append(job)
        self._waiting = deque(job for job in left if job not in taken)
        return taken

    def _fits(self, jobs: Sequence[Job]) -> bool:
        rows, longest = sum(job.count for job in jobs), max(len(job.ids) for job in jobs) + max(job.cap for job in jobs)
        return rows <= self._limits.batch and rows * longest <= self._limits.batch_tokens

    def _answer(self, jobs: list[Job]) -> None:
        started = time.perf_counter()
        try:
            self._decode(jobs)
        except CirfError as error:
            if len(jobs) == 1 or any(any(job.made) for job in jobs):
                _fail(jobs, str(error))
                return
            for job in jobs:  # one of them may be the cause: each by itself
                self._answer([job])
        except Exception:
            _log.exception("a batch of %d answers failed", sum(job.count for job in jobs))
            _fail(jobs, "the server could not answer; its log says more")
        self._pace += 0.3 * (time.perf_counter() - started - self._pace)

    def _decode(self, jobs: Sequence[Job]) -> None:
        from cirf.lm.decoding.generate import Decoding, follow
        from cirf.lm.decoding.sampling import draw

        served, how = jobs[0].served, jobs[0].how
        stops = frozenset(stop_ids(served.model, served.tokenizer))
        owners = [(job, place) for job in jobs for place in range(job.count)]
        for job in jobs:
            job.made, job.ends = [[] for _ in range(job.count)], [None] * job.count
            job.began, job.together = time.perf_counter(), len(owners)

        def step(rows: Sequence[int], tokens: Sequence[int]) -> list[bool]:
            touched: dict[Job, None] = {}
            for row, token in zip(rows, tokens, strict=True):
                job, place = owners[row]
                if not job.cancelled:
                    made = job.made[place]
                    made.append(token)
                    job.ends[place] = "stop" if token in stops else "length" if len(made) >= job.cap else None
                    touched[job] = None
            for job in touched:
                job.first = job.first or time.perf_counter()
                if all(job.ends):
                    _end(job)
                elif job.streamed:
                    job.changed()
            return [job.cancelled or job.ends[place] is not None for job, place in (owners[row] for row in rows)]

        steer, cap = served.steer(how.steering, how.calculator), max(job.cap for job in jobs)
        decoding = Decoding(how.temperature, how.top_p, prefixes=served.thinking, steer=steer)
        draws = [draw(job.seed, job.prompt, place) for job, place in owners]
        follow(served.model, served.tokenizer, [job.ids for job, _ in owners], cap, step, decoding, draws)
        for job in jobs:
            if not job.over:
                _end(job)


def _end(job: Job) -> None:
    job.ended = time.perf_counter()
    notify, job.changed = job.changed, lambda: None  # breaks the reference cycle with the waiting caller
    notify()


def _fail(jobs: Sequence[Job], error: str) -> None:
    for job in jobs:
        if not job.over:
            job.error = error
            _end(job)
