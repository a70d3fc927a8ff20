"""A fleet of teacher servers with faults, in virtual time: does the formula in docs/reference/scale.md hold, and is anything
lost?

    python -m benchmarks.fleet [--questions 20000] [--servers 40] [--places 25] [--folder DIR] [--out FILE]

The client is the real one (`cirf.endpoints.fleet`: workers, retries, pauses, ``Retry-After``, excluded servers, and the log on
disk with every answer). Servers and clock are simulated, so hours take seconds. Four fleets are simulated: all places without
faults; all of them with faults, one server being down for an hour; and a tenth and a hundredth of the places with the same
faults. With a tenth of the places the same questions take ten times as long. So a hundredth of ten million questions on a
hundredth of a fleet takes as long as all of them on the whole fleet. The last fleet's client is killed half way and restarted.

The table compares simulated hours with predicted ones (`predict`). *Wasted* are requests without an answer, *lost* questions
without an answer in the log, *twice* answers that were generated again. The last line is JSON; ``ratio`` is predicted over
simulated hours, of the second fleet if it was simulated.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import resource
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.fleet_servers import Clock, Faults, Pace, Server, Tally, connecting, jumping

from cirf.store.files import RowLog

MODEL = "teacher"
_LONGEST_PAUSE = 60.0  # before a failing server is tried again: `cirf.endpoints.fleet`


class Killed(BaseException):
    """The client was killed."""


class Mortal(RowLog):
    """A log whose client is killed after so many rows, in the middle of writing the next one."""

    def __init__(self, path: Path, rows: int) -> None:
        """Be killed after ``rows`` rows in all."""
        super().__init__(path)
        self._left = rows - len(self.rows())

    def append(self, *rows: Mapping[str, Any]) -> None:
        """Append rows, or raise `Killed` in the middle of one."""
        if self._left <= 0:
            with open(self.path, "ab") as file:
                file.write(b'{"key": "torn')
            raise Killed
        super().append(*rows)
        self._left -= len(rows)


@dataclass(frozen=True, slots=True)
class Fleet:
    """Servers of one model, each with ``places`` concurrent requests."""

    servers: int
    places: int
    pace: Pace
    faults: Faults

    @property
    def workers(self) -> int:
        """Places in all."""
        return self.servers * self.places


@dataclass(frozen=True, slots=True)
class Ran:
    """Outcome of a simulation: hours and counts.

    ``client_s``: processor seconds here, including the simulated servers; ``log_bytes``: size of the log; ``grown_bytes``:
    growth of this process's peak memory.
    """

    hours: float
    asked: int
    wasted: int
    lost: int
    twice: int
    client_s: float
    log_bytes: int
    grown_bytes: int


def predict(fleet: Fleet, questions: int, trials: int = 20_000) -> dict[str, float]:
    """Predict the hours that a fleet takes, and the requests without an answer, by formula.

    With W places, C of them at each server, a question occupies a place for the mean time of an answer, and half of that for
    each broken or cut request. Each 429 idles all C places of its server, each after its current request, for the rest of the
    ``Retry-After`` plus the twentieth that the client adds. A server that is down costs its places for that time, and half of
    the client's longest pause until it is tried again. The sum is divided by W. In the end places are idle until the last
    answer. Calls to the server that is down are wasted, too, but not counted here.
    """
    pace, faults, chance = fleet.pace, fleet.faults, random.Random("foretell")
    times = [pace.seconds(pace.draw(chance)) for _ in range(trials)]
    total, rest = sum(times), 1.05 * faults.retry_after
    mean = total / trials
    # The remaining time of a running request is uniform over answers weighted by their time.
    waits = sum(rest * min(each, rest) - min(each, rest) ** 2 / 2 for each in times) / total
    a_quiet = rest + (fleet.places - 1) * waits
    failed = (faults.broken + faults.dropped) / faults.answered
    a_question = mean * (1 + failed / 2) + faults.busy / faults.answered * a_quiet
    rests = [each * chance.random() for each in chance.choices(times, weights=times, k=max(fleet.workers, 1000))]
    tail = sum(max(chance.choices(rests, k=fleet.workers)) for _ in range(20)) / 20 - sum(rests) / len(rests)
    seconds = questions * a_question / fleet.workers + tail
    if faults.dead_from < seconds:
        dead = faults.dead_for + _LONGEST_PAUSE / 2
        without = (seconds - faults.dead_from) * fleet.workers / max(1, fleet.workers - fleet.places)  # if it stays dead
        seconds = faults.dead_from + min(without, seconds - faults.dead_from + dead * fleet.places / fleet.workers)
    wasted = questions * (1 / faults.answered - 1) + (fleet.places if faults.dead_from < seconds else 0)
    return {"hours": seconds / 3600, "wasted": wasted, "seconds_a_question": a_question, "answer_s": mean}


def simulate(fleet: Fleet, questions: int, log: Path, killed_at: int | None = None) -> Ran:
    """Run the real client against simulated servers; ``killed_at``: rows in the log when it is killed and restarted."""
    from cirf.endpoints import fleet as endpoints
    from cirf.endpoints.requests import Request
    from cirf.errors import CirfError
    from cirf.recipe.schema import Endpoint, RequestSettings

    clock, tally = Clock(), Tally()
    section = RequestSettings(
        endpoints=tuple(
            Endpoint(url=f"http://server-{number}/v1", model=MODEL, concurrency=fleet.places) for number in range(fleet.servers)
        )
    )
    servers = {
        endpoint.url: Server(endpoint.url, fleet.pace, fleet.faults, number == 0, clock, tally)
        for number, endpoint in enumerate(section.endpoints)
    }
    held = _most_memory()
    asked = (f"Solve the following problem step by step: {n} {'x' * 250}" for n in range(questions))
    requests = [Request(MODEL, (("user", text),), n, 0.7, 0.95, fleet.pace.cap) for n, text in enumerate(asked)]
    started = time.process_time()
    with mock.patch.object(endpoints, "connect", connecting(servers)), jumping(clock, endpoints):
        if killed_at is not None:
            with contextlib.suppress(Killed):
                endpoints.ask(requests, section, Mortal(log, killed_at))
        try:
            endpoints.ask(requests, section, RowLog(log))
        except CirfError as error:  # some questions have no answer; the log shows which
            print(error)
    spent, grown = time.process_time() - started, _most_memory() - held
    kept = [row["key"] for row in RowLog(log).rows()]
    wanted = {request.key for request in requests}
    twice = len(kept) - len(set(kept)) + sum(count - 1 for count in tally.keys.values())
    lost = len(wanted - set(kept))
    return Ran(clock.now / 3600, tally.asked, tally.wasted, lost, twice, spent, log.stat().st_size, grown)


def _most_memory() -> int:
    """Bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def fleets(options: argparse.Namespace) -> dict[str, Fleet]:
    """The fleets that are simulated."""
    pace = Pace(tokens=options.tokens, a_second=options.tokens_per_second)
    rest = {"busy": options.busy, "broken": options.broken, "dropped": options.dropped, "retry_after": options.retry_after}

    def of(servers: int, places: int) -> Fleet:
        begun = predict(Fleet(servers, places, pace, Faults()), options.questions)["hours"] * 3600
        return Fleet(servers, places, pace, Faults(**rest, dead_from=0.2 * begun, dead_for=options.dead))

    return {
        "no faults": Fleet(options.servers, options.places, pace, Faults()),
        "faults": of(options.servers, options.places),
        "a tenth": of(max(2, options.servers // 10), options.places),
        "a hundredth": of(2, max(1, options.servers * options.places // 200)),
    }


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Simulate all, print the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=20_000)
    parser.add_argument("--fleet", action="append", help="repeatable: no faults, faults, a tenth, a hundredth; default: all")
    parser.add_argument("--servers", type=int, default=40)
    parser.add_argument("--places", type=int, default=25, help="questions that a server answers at once")
    parser.add_argument("--tokens", type=float, default=194.8, help="of an answer; default: the paper's for GSM8K")
    parser.add_argument("--tokens-per-second", type=float, default=30.0, help="at a place, while all are taken")
    parser.add_argument("--busy", type=float, default=0.002, help="share of requests answered 429")
    parser.add_argument("--broken", type=float, default=0.005, help="share answered 500")
    parser.add_argument("--dropped", type=float, default=0.005, help="share whose connection is cut")
    parser.add_argument("--retry-after", type=float, default=5.0, help="seconds that a 429 asks for")
    parser.add_argument("--dead", type=float, default=3600.0, help="seconds for which one server is dead")
    parser.add_argument("--folder", type=Path, help="folder for the logs; every answer is synced to that disk")
    parser.add_argument("--out", type=Path, help="JSON file with what the last line says")
    options = parser.parse_args(arguments)

    print(f"{options.questions:,} questions, {options.tokens:g} tokens each, {options.tokens_per_second:g} a second at a place\n")
    print(f"{'fleet':14}{'servers':>8}{'places':>8}{'predicted h':>12}{'simulated':>11}{'ratio':>8}", end="")
    print(f"{'wasted':>9}{'predicted':>10}{'lost':>6}{'twice':>7}{'client ms an answer':>21}")
    summary: dict[str, Any] = {}
    made = fleets(options)
    for name, fleet in made.items():
        if options.fleet and name not in options.fleet:
            continue
        predicted = predict(fleet, options.questions)
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            killed = options.questions // 2 if name == list(made)[-1] else None
            ran = simulate(fleet, options.questions, Path(folder) / "answers.jsonl", killed)
        ratio, each = predicted["hours"] / ran.hours, ran.client_s / options.questions * 1000
        print(f"{name:14}{fleet.servers:8}{fleet.workers:8,}{predicted['hours']:12.3f}{ran.hours:11.3f}{ratio:8.3f}", end="")
        print(f"{ran.wasted:9,}{predicted['wasted']:10,.0f}{ran.lost:6}{ran.twice:7}{each:21.2f}", flush=True)
        summary[name] = {"servers": fleet.servers, "workers": fleet.workers, "predicted_hours": round(predicted["hours"], 4)}
        summary[name] |= {"ratio": round(ratio, 4), "predicted_wasted": round(predicted["wasted"]), **asdict(ran)}
    first = next(iter(summary.values()))
    each_log, each_held = (first[key] / options.questions for key in ("log_bytes", "grown_bytes"))
    print(f"\nan answer of the first fleet: {each_log:,.0f} bytes of the log, {each_held:,.0f} bytes of the client's memory")
    whole = made["faults"]
    often = predict(whole, 10_000_000)
    print(f"ten million questions at {whole.workers:,} places: {often['hours']:.1f} h, {often['wasted']:,.0f} requests wasted")
    shown = summary.get("faults") or next(iter(summary.values()))
    ours, peer = shown["predicted_hours"], shown["hours"]
    line: dict[str, Any] = {
        "benchmark": "fleet",
        "ours": ours,
        "peer": round(peer, 4),
        "ratio": round(ours / peer, 4),
        "unit": "hours",
    }
    line |= {"n": options.questions, "lost": sum(row["lost"] for row in summary.values()), "fleets": summary}
    line["ten_million_hours"] = round(often["hours"], 2)
    line["options"] = {key: value for key, value in vars(options).items() if not isinstance(value, Path)}
    if options.out:
        options.out.write_text(json.dumps(line, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(line))
    return line


if __name__ == "__main__":
    main()
