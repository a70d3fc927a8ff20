"""A fleet of teachers with faults, in virtual time: does the arithmetic of docs/reference/scale.md hold, and is anything lost?

    python -m benchmarks.fleet [--questions 20000] [--servers 40] [--places 25] [--folder DIR] [--out FILE]

The client is the real one (`cirf.endpoints.fleet`: its workers, retries, pauses, ``Retry-After``, servers left alone, and
the log on disk that holds every answer); servers and clock are not. A run of hours takes seconds. Four fleets are simulated: all
places without a fault; all of them with faults, one server being dead for an hour; and a tenth and a hundredth of the places
with the same faults, where as many questions take ten and a hundred times as long. A hundredth of ten million questions at a
hundredth of a fleet takes as long as all of them at all of it. The last fleet's client is killed half way and started again.

Beside each stand the hours that the arithmetic foretells (`foretell`). *Wasted* are requests that brought no answer, *lost*
questions without an answer in the log, *twice* answers that were made again. The last line is JSON; ``ratio`` is predicted over
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
_LONGEST_PAUSE = 60.0  # of a server that only fails: `cirf.endpoints.fleet`


class Killed(BaseException):
    """The client died."""


class Mortal(RowLog):
    """A log whose client dies after so many rows, in the middle of writing the next one."""

    def __init__(self, path: Path, rows: int) -> None:
        """Die at ``rows`` rows in all."""
        super().__init__(path)
        self._left = rows - len(self.rows())

    def append(self, *rows: Mapping[str, Any]) -> None:
        """Add rows, or die of it."""
        if self._left <= 0:
            with open(self.path, "ab") as file:
                file.write(b'{"key": "torn')
            raise Killed
        super().append(*rows)
        self._left -= len(rows)


@dataclass(frozen=True, slots=True)
class Fleet:
    """Servers of one model, each with so many places."""

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
    """What became of some questions: hours and counts; ``client_s`` are seconds of this processor, simulated servers included;
    ``log_bytes`` those of the log, ``grown_bytes`` by how much the most memory that this process ever held has grown."""

    hours: float
    asked: int
    wasted: int
    lost: int
    twice: int
    client_s: float
    log_bytes: int
    grown_bytes: int


def foretell(fleet: Fleet, questions: int, trials: int = 20_000) -> dict[str, float]:
    """Hours that a fleet takes, and requests that bring no answer, by arithmetic alone.

    With W places, C of them at each server, a question takes of a place: the mean time of an answer; half of that for each
    broken or cut request; and for each 429 what is left of its ``Retry-After`` (and a twentieth, which the client adds) at all C
    places of that server, each once it is done with what it is at. The dead server costs its places while it is dead, and half of
    the client's longest pause until it is found alive. All this over W; and in the end places stand idle until the last answer.
    Calls to the dead server are wasted, too, but are not counted here.
    """
    pace, faults, chance = fleet.pace, fleet.faults, random.Random("foretell")
    times = [pace.seconds(pace.draw(chance)) for _ in range(trials)]
    total, rest = sum(times), 1.05 * faults.retry_after
    mean = total / trials
    # The rest of what a place is at, seen at any moment, is evenly spread over answers weighted by their time.
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
    """Have the real client ask simulated servers; ``killed_at``: rows in the log when it is killed and started again."""
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
        except CirfError as error:  # some are without an answer, which the log will tell
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
        begun = foretell(Fleet(servers, places, pace, Faults()), options.questions)["hours"] * 3600
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
    parser.add_argument("--folder", type=Path, help="where the logs lie meanwhile; every answer is synchronised to that disk")
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
        predicted = foretell(fleet, options.questions)
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
    often = foretell(whole, 10_000_000)
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
