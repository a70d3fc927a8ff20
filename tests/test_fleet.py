"""A fleet of simulated servers asked by the real client, in virtual time (`benchmarks.fleet`)."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from benchmarks import fleet
from benchmarks.fleet import Fleet, predict, simulate
from benchmarks.fleet_servers import Clock, Faults, Pace, jumping

pytestmark = pytest.mark.slow

PACE = Pace(tokens=60, a_second=30)


def test_hours_of_virtual_time_take_no_time_and_keep_their_order() -> None:
    clock, order = Clock(), list[str]()

    async def late(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        order.append(f"{name} {clock.now:g}")

    async def main() -> None:
        await asyncio.gather(late("b", 7200), late("a", 3600.5))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await asyncio.sleep(61)

    started = time.monotonic()
    with jumping(clock):
        asyncio.run(main())
    assert order == ["a 3600.5", "b 7200"]
    assert clock.now == pytest.approx(7260)
    assert time.monotonic() - started < 60


def test_a_deadlock_is_reported() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with jumping(Clock()), pytest.raises(RuntimeError, match="deadlock"):
        asyncio.run(main())


def test_without_faults_the_arithmetic_predicts_the_hours(tmp_path: Path) -> None:
    made = Fleet(4, 5, PACE, Faults())
    ran, predicted = simulate(made, 600, tmp_path / "log.jsonl"), predict(made, 600)
    assert (ran.asked, ran.wasted, ran.lost, ran.twice) == (600, 0, 0, 0)
    assert ran.hours == pytest.approx(predicted["hours"], rel=0.06)


def test_with_faults_nothing_is_lost_and_the_arithmetic_still_holds(tmp_path: Path) -> None:
    faults = Faults(busy=0.01, broken=0.02, dropped=0.02, retry_after=3, dead_from=60, dead_for=120)
    made = Fleet(4, 5, PACE, faults)
    ran, predicted = simulate(made, 1500, tmp_path / "log.jsonl"), predict(made, 1500)
    assert (ran.lost, ran.twice) == (0, 0)
    assert ran.hours == pytest.approx(predicted["hours"], rel=0.08)
    assert predicted["wasted"] * 0.6 < ran.wasted < predicted["wasted"] * 2  # calls to the dead server are not predicted
    keys = [json.loads(line)["key"] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert len(keys) == len(set(keys)) == 1500


def test_a_server_that_stays_dead_leaves_its_questions_to_the_others(tmp_path: Path) -> None:
    made = Fleet(3, 4, PACE, Faults(dead_from=0, dead_for=1e6))
    ran = simulate(made, 300, tmp_path / "log.jsonl")
    alive = predict(Fleet(2, 4, PACE, Faults()), 300)
    assert (ran.lost, ran.twice) == (0, 0)
    assert ran.hours == pytest.approx(alive["hours"], rel=0.08)


def test_a_killed_client_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    made = Fleet(2, 3, PACE, Faults(broken=0.02))
    ran = simulate(made, 200, tmp_path / "log.jsonl", killed_at=100)
    assert ran.lost == 0
    assert ran.twice <= 1  # the answer that it died of
    assert 200 <= ran.asked < 200 + 6 + 20


def test_as_many_questions_at_a_tenth_of_the_places_take_ten_times_as_long() -> None:
    whole, tenth = (predict(Fleet(servers, 10, PACE, Faults()), 100_000)["hours"] for servers in (10, 1))
    assert tenth / whole == pytest.approx(10, rel=0.01)


def test_the_command_prints_a_line_of_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "fleet.json"
    sizes = ["--questions", "120", "--servers", "4", "--places", "3", "--dead", "20"]
    fleet.main([*sizes, "--folder", str(tmp_path), "--out", str(out)])
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert line == json.loads(out.read_text())
    assert line["lost"] == 0 and line["n"] == 120
    assert list(line["fleets"]) == ["no faults", "faults", "a tenth", "a hundredth"]
