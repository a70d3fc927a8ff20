"""Schemathesis against ``cirf serve``: does every answer and every refusal match the server's OpenAPI description?

    python -m benchmarks.openapi [--cases 100] [--seed 0] [--rounds open key none wrong]

Needs schemathesis (``pip install schemathesis==4.32.5 -c constraints.txt``), which reads ``/openapi.json`` and generates
requests: valid ones, ones with a changed or missing value, other methods, other media types. The server runs in a separate
process with two tiny models, one with functional tokens and one without. The rounds:

- ``open``: a server without a key
- ``key``: one with a key, and clients that have it; answered requests are repeated without it
- ``none``, ``wrong``: clients without a key, or with a wrong one

All checks of schemathesis apply, and two of our own: streams end completely, and without the key the only answer is 401. After
each round the server must be idle, answer a plain question and exit with 0 when stopped; a traceback in its log counts as a
failure. *Exempt* requests are valid by the description but break a rule that OpenAPI cannot express (the list is in
``openapi_hooks.py``). The last line is JSON; a ratio of 1 means that no case failed.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import importlib.util
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path as File
from typing import Any

TESTED = "4.32.5"
ROUNDS = ("open", "key", "none", "wrong")
LONGEST = 30
"""Seconds allowed for a request, and for the server to stop."""

# Streams are read to their end. Requests are printed unredacted, since the key is a dummy. Each round fills in its key.
CONFIG = """
max-stream-events = 1000000
request-timeout = {longest}
hooks = "{hooks}"
[output.sanitization]
enabled = false
[output.truncation]
enabled = false
[generation]
database = "none"
no-shrink = true
{key}
"""


@dataclass
class Tally:
    """Requests to one operation: their number, by status, failed, and exempt."""

    cases: int = 0
    failed: int = 0
    passed: int = 0
    statuses: collections.Counter[int] = field(default_factory=collections.Counter)


class Server:
    """``cirf serve`` in a process of its own."""

    def __init__(self, folder: File, models: tuple[File, File], key: str | None) -> None:
        self._log = folder / "server.log"
        self.key = key
        asked = [str(models[0]), "--compare", str(models[1]), "--port", "0", "--json"]
        keyed = [] if key is None else ["--api-key-env", "CIRF_OPENAPI_KEY"]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cirf", "serve", *asked, *keyed],
                env=os.environ | {"OMP_NUM_THREADS": "1", "CIRF_OPENAPI_KEY": key or ""},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        summary = self._process.stdout.readline()
        if not summary:
            raise SystemExit(f"the server did not start:\n{self._log.read_text()}")
        self.url: str = json.loads(summary)["url"]
        paths = self._asked("/openapi.json")["paths"]
        self.operations = [f"{method.upper()} {path}" for path, methods in paths.items() for method in methods]

    def _asked(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        headers = {"Content-Type": "application/json"} | ({} if self.key is None else {"Authorization": f"Bearer {self.key}"})
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers), timeout=LONGEST) as response:
            return json.load(response)

    def faults(self) -> Iterator[str]:
        """Faults of the server after a round."""
        deadline = time.monotonic() + LONGEST
        try:
            while (health := self._asked("/health"))["waiting"] or health["running"]:
                if time.monotonic() > deadline:
                    yield f"the server is still busy {LONGEST} s later: {health}"
                    break
                time.sleep(0.1)
            question = {"model": "traces", "messages": [{"role": "user", "content": "How many are 2 and 3?"}]}
            if not self._asked("/v1/chat/completions", question)["choices"]:
                yield "the server has no answer to a plain question any more"
        except OSError as error:
            yield f"the server does not answer any more: {error}"

    def stop(self) -> Iterator[str]:
        """Stop it as Ctrl-C does; yields faults of the exit and of its log."""
        self._process.terminate()
        try:
            self._process.communicate(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            yield f"the server did not end within {LONGEST} s"
        else:
            if self._process.returncode:
                yield f"the server ended with {self._process.returncode}"
        log = self._log.read_text()
        if "Traceback" in log:
            yield f"the server's log has a traceback:\n{log[-4000:]}"


def tried(server: Server, name: str, cases: int, seed: int, folder: File) -> tuple[dict[str, Tally], list[str]]:
    """One round: tallies by operation, and other faults."""
    events, config = folder / "events.ndjson", folder / "schemathesis.toml"
    events.unlink(missing_ok=True)
    given = {"key": server.key, "wrong": secrets.token_hex(16)}.get(name)
    key = "" if given is None else f'[auth.openapi.HTTPBearer]\nbearer = "{given}"'
    hooks = File(__file__).with_name("openapi_hooks.py")
    config.write_text(CONFIG.format(longest=LONGEST, hooks=hooks, key=key))
    locked = {"CIRF_OPENAPI_LOCKED": "1"} if name in ("none", "wrong") else {}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--no-color", "--config-file", str(config)),
            *("run", f"{server.url}/openapi.json", "--max-examples", str(cases), "--seed", str(seed)),
            *("--continue-on-failure", "--report", "ndjson", "--report-ndjson-path", str(events)),
        ],
        env=os.environ | locked,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    tallies = counted(events, server.operations) if events.exists() else {}
    faults = [] if tallies else ["nothing was tried"]
    if done.returncode or any(tally.failed for tally in tallies.values()):
        said = re.split("(?m)^=+ (?:ERRORS|FAILURES) =+$", done.stdout, maxsplit=1)[-1] + done.stderr
        faults.append(f"schemathesis ended with {done.returncode}:\n{said[:8000]}")
    return tallies, faults


def counted(events: File, operations: Collection[str]) -> dict[str, Tally]:
    """Tallies from a report of schemathesis; requests outside all operations are counted together."""
    tallies: dict[str, Tally] = collections.defaultdict(Tally)
    for line in events.read_text(encoding="utf-8").splitlines():
        record = json.loads(line).get("ScenarioFinished", {}).get("recorder", {})
        for case, sent in record.get("interactions", {}).items():
            value = record["cases"][case]["value"]
            label = f"{value['method']} {value['path']}"
            tally = tallies[label if label in operations else "other methods"]
            tally.cases += 1
            status = (sent.get("response") or {}).get("status_code", 0)
            bad = any(check["status"] == "failure" for check in record.get("checks", {}).get(case, ()))
            tally.failed += bad or not status
            tally.passed += record.get("filtered_failures", {}).get(case, 0)
            tally.statuses[status] += 1
    return dict(tallies)


def main() -> None:
    """Try every round, print the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100, help="most requests drawn for an operation, besides the fixed ones")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", nargs="+", choices=ROUNDS, default=list(ROUNDS))
    options = parser.parse_args()
    if importlib.util.find_spec("schemathesis") is None:
        raise SystemExit(f"benchmarks.openapi needs schemathesis: pip install schemathesis=={TESTED} -c constraints.txt")
    tests = File(__file__).parents[1] / "tests"
    sys.path[:0] = [str(tests), str(tests / "serving")]
    cases = failed = passed = 0
    faults: list[str] = []
    began = time.perf_counter()
    print(f"{'round':<6} {'operation':<28} {'cases':>7} {'failed':>7} {'exempt':>9}   statuses")
    with tempfile.TemporaryDirectory() as place:
        folder = File(place)
        models = importlib.import_module("served").write_models(folder)
        for name in options.rounds:
            server = Server(folder, models, None if name == "open" else secrets.token_hex(16))
            ending: list[str] = []
            try:
                tallies, found = tried(server, name, options.cases, options.seed, folder)
                found += server.faults()
            finally:
                ending += server.stop()
            for label, tally in sorted(tallies.items()):
                statuses = ", ".join(f"{status or 'none'}: {count}" for status, count in sorted(tally.statuses.items()))
                print(f"{name:<6} {label:<28} {tally.cases:>7,} {tally.failed:>7} {tally.passed:>9}   {statuses}", flush=True)
                cases, failed, passed = cases + tally.cases, failed + tally.failed, passed + tally.passed
            faults += [f"{name}: {fault}" for fault in (*found, *ending)]
    print("\n".join(faults) or "nothing else is wrong")
    wrong = failed or len(faults)
    share = (cases - wrong) / cases if cases else 0.0
    result = {"benchmark": "openapi", "ours": cases - wrong, "peer": cases, "ratio": share, "unit": "cases without a failure"}
    result |= {"n": cases, "failed": failed, "exempt": passed, "faults": len(faults), "seed": options.seed}
    print(json.dumps(result | {"rounds": options.rounds, "seconds": round(time.perf_counter() - began, 1)}))


if __name__ == "__main__":
    main()
