"""A straight line through points whose heights are shares of the same questions: fit, and bands by drawing questions anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

DRAWS = 2000


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """``y = intercept + slope x`` by least squares.

    ``r2``: share of the points' spread that it explains, ``None`` where they have none; ``r2_out``: the same where each point is
    foretold by a line through the others; ``slope_low``, ``slope_high`` and ``band`` [3 x g] (places across, lower end, upper
    end) are 95 % by the bootstrap; ``p_line``: see `lack_of_fit`.
    """

    intercept: float
    slope: float
    r2: float | None
    r2_out: float | None
    slope_low: float
    slope_high: float
    band: np.ndarray
    p_line: float | None

    def at(self, x: float) -> float:
        """Its height."""
        return self.intercept + self.slope * x


def drawn(tables: Sequence[np.ndarray], draws: int = DRAWS, seed: int = 0) -> np.ndarray:
    """Means of tasks, each alike, of every point with questions drawn anew: [draws x P].

    ``tables``: of each task the values [P x n] of its questions. A draw takes the same questions for every point, as all points
    answered the same.
    """
    import numpy as np

    generator = np.random.default_rng(seed)
    total = np.zeros((draws, len(tables[0])))
    for values in tables:
        count = values.shape[1]
        times = generator.multinomial(count, np.full(count, 1 / count), size=draws)
        total += times @ values.T / count
    means: np.ndarray = total / len(tables)
    return means


def fit(x: np.ndarray, y: np.ndarray, drawn_x: np.ndarray, drawn_y: np.ndarray, resolution: float) -> Line:
    """The line through points x, y [P], and its bands from those of each draw [draws x P]. ``x`` must not be all alike.

    ``resolution``: half of what one question more adds to a height.
    """
    import numpy as np

    intercept, slope = _least_squares(x[None], y[None])
    rest = y - (intercept[0] + slope[0] * x)
    spread = float(((y - y.mean()) ** 2).sum())
    lever = 1 / len(x) + (x - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum()
    alone = bool((lever > 1 - 1e-9).any())  # a point through which every line goes cannot be foretold
    foretold = None if alone else float(((rest / (1 - lever)) ** 2).sum())
    intercepts, slopes = _least_squares(drawn_x, drawn_y)
    grid = np.linspace(x.min(), x.max(), 41)
    low, high = np.quantile(intercepts[:, None] + slopes[:, None] * grid, (0.025, 0.975), axis=0)
    ends = np.quantile(slopes, (0.025, 0.975))
    return Line(
        float(intercept[0]),
        float(slope[0]),
        1 - float((rest**2).sum()) / spread if spread > 0 else None,
        1 - foretold / spread if spread > 0 and foretold is not None else None,
        float(ends[0]),
        float(ends[1]),
        np.stack([grid, low, high]),
        lack_of_fit(rest, drawn_y - (intercepts[:, None] + slopes[:, None] * drawn_x), resolution),
    )


def lack_of_fit(rest: np.ndarray, drawn_rest: np.ndarray, resolution: float) -> float | None:
    """How often residuals would be as large if the points' true heights lay on a line; ``None`` where they show no spread.

    ``rest`` [P]: the points' residuals; ``drawn_rest`` [draws x P]: those of each draw, whose departures from ``rest`` are what
    drawing questions does to residuals. All points answer the same questions, so that most of what a draw does to one point it
    does to all and the line takes it up: residuals are surer than the intervals of single points say. The measure is the sum
    of squares, each residual in units of its own spread, of at least ``resolution``, as no spread may be seen among few.
    """
    import numpy as np

    if np.abs(rest).max() < 1e-9:
        return None
    moved = drawn_rest - rest
    spread = np.maximum(np.sqrt((moved**2).mean(axis=0)), resolution)
    seen = float(((rest / spread) ** 2).sum())
    by_chance = ((moved / spread) ** 2).sum(axis=1)
    return float((1 + (by_chance >= seen).sum()) / (1 + len(by_chance)))


def _least_squares(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Intercepts and slopes of many lines at once: x, y [n x P] to [n] each; a line of no spread across is level."""
    import numpy as np

    across = x - x.mean(axis=1, keepdims=True)
    squares = (across**2).sum(axis=1)
    slope = np.divide((across * y).sum(axis=1), squares, out=np.zeros(len(y)), where=squares > 0)
    return y.mean(axis=1) - slope * x.mean(axis=1), slope
