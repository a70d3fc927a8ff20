"""An engine that needs no model: it writes down who is asked what, and its seconds are what a test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Timed(NamedTuple):
    tokens: int
    seconds: float
    first_token_seconds: float | None
    text: str = "not for a timings file"
    truncated: bool = False


class Bench:
    """Methods in ``groups`` of one checkpoint; call number ``stop`` is a kill."""

    def __init__(
        self,
        *groups: Sequence[str],
        together: bool = True,
        device: str = "a device",
        stop: int | None = None,
        seconds: Callable[[int], float] = float,
    ) -> None:
        self.groups, self.together, self.device, self.stop, self.seconds = groups, together, device, stop, seconds
        self.calls: list[tuple[str, Any, int]] = []
        self.loads: list[tuple[str, ...]] = []
        self.runs: list[int] = []

    def facts(self) -> dict[str, Any]:
        return {"engine": "an engine", "device": self.device}

    @property
    def loading(self) -> dict[str, Any]:
        return {"together": self.together, "models": len(self.groups)}

    def load(self, methods: Sequence[str]) -> None:
        self.loads.append(tuple(methods))

    def render(self, method: str, prompt: str) -> str:
        return f"[{prompt}]"

    def _called(self, method: str, prompts: Any, cap: int) -> float:
        if len(self.calls) == self.stop:
            raise KeyboardInterrupt
        assert method in self.loads[-1]
        self.calls.append((method, prompts, cap))
        return self.seconds(len(self.calls))

    def one(self, method: str, prompt: str, cap: int, run: int = 0) -> Timed:
        self.runs.append(run)
        return Timed(7, self._called(method, prompt, cap), 0.25)

    def memory(self, method: str) -> dict[str, int | None]:
        return {"weights_bytes": 100, "growth_bytes": len(self.calls) if self.device == "cuda" else None}
