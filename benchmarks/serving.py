"""Many clients at once against ``cirf serve``: some are slow, some disconnect; all others must be answered or asked to retry.

    python -m benchmarks.serving MODEL [--clients 200] [--slow 20] [--cut 20] [--waves 3] [--queue 256] [--batch 32]

``MODEL`` is anything ``cirf serve`` takes, or ``tiny``: a generated model. The server runs in a separate process. In every wave
all clients send at once:

- normal ones, through the ``openai`` client without retries, half of them streaming;
- slow ones, which send their request in pieces; half of them never finish;
- ones that disconnect after the first bytes of the answer, or before any.

The next wave starts once the normal clients have their answers, while unfinished requests are still open. The table shows the
share of normal clients served, refusals by status with the smallest and largest ``Retry-After``, latencies, and the server's
memory after each wave. The last line is JSON; a ratio of 1 means that all normal clients were served.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path as File
from typing import Any
from urllib.parse import urlsplit

CAPS = (8, 16, 24, 48)


def _tiny(folder: File) -> str:
    """A model of two layers with random weights, saved as in a run."""
    sys.path.insert(0, str(File(__file__).parents[1] / "tests"))
    import tinyrun

    return str(tinyrun.write_backbone(folder / "tiny", scale=2.0))


def _memory(process: int) -> float:
    """Resident memory of a process in MiB."""
    pages = int(File(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Wave:
    """Outcomes of the clients of one wave."""

    def __init__(self) -> None:
        self.served: list[float] = []
        self.refused: list[tuple[int, int | None]] = []
        self.lost: list[str] = []
        self._lock = threading.Lock()

    def ask(self, client: Any, model: str, number: int) -> None:
        """A normal client."""
        import openai

        asking = {"model": model, "messages": [{"role": "user", "content": f"What is {number} plus {number * 7 % 100}?"}]}
        started = time.perf_counter()
        try:
            if number % 2:
                client.chat.completions.create(**asking, max_tokens=CAPS[number % len(CAPS)])
            else:
                chunks = list(client.chat.completions.create(**asking, max_tokens=CAPS[number % len(CAPS)], stream=True))
                assert chunks[-1].choices[0].finish_reason
        except openai.APIStatusError as error:
            after = error.response.headers.get("retry-after")
            with self._lock:
                self.refused.append((error.status_code, None if after is None else int(after)))
        except Exception as error:
            with self._lock:
                self.lost.append(type(error).__name__)
        else:
            with self._lock:
                self.served.append(time.perf_counter() - started)

    def misbehave(self, address: tuple[str, int], model: str, number: int, slow: bool) -> None:
        """A client that is slow to send, or disconnects."""
        asked = {"model": model, "messages": [{"role": "user", "content": f"Wait {number}"}], "max_tokens": 64, "stream": True}
        body = json.dumps(asked).encode()
        summary = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": len(body)}
        head = "".join(f"{name}: {value}\r\n" for name, value in summary.items())
        request = f"POST /v1/chat/completions HTTP/1.1\r\n{head}\r\n".encode() + body
        try:
            with socket.create_connection(address, timeout=30) as connection:
                if slow:
                    pieces = [request[start : start + 24] for start in range(0, len(request), 24)]
                    for piece in pieces[: len(pieces) // (1 + number % 2)]:
                        connection.sendall(piece)
                        time.sleep(0.2)
                    connection.recv(4096)
                else:
                    connection.sendall(request)
                    if number % 2:
                        connection.recv(64)
        except OSError:
            pass  # closed by the server, as expected


def main() -> None:
    """Start the server, send the waves, print the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--slow", type=int, default=20, help="of them slow to send")
    parser.add_argument("--cut", type=int, default=20, help="of them cut off")
    parser.add_argument("--waves", type=int, default=3)
    parser.add_argument("--queue", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=300.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = _tiny(File(folder)) if options.model == "tiny" else options.model
        limits = [
            "--max-queue-size",
            str(options.queue),
            "--max-batch-size",
            str(options.batch),
            "--timeout",
            str(options.seconds),
        ]
        command = [sys.executable, "-m", "cirf", "serve", model, "--port", "0", "--json", *limits]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                _measure(options, process)
            finally:
                process.terminate()


def _measure(options: argparse.Namespace, process: subprocess.Popen[str]) -> None:
    from openai import OpenAI

    assert process.stdout is not None
    summary = json.loads(process.stdout.readline())
    url, model = urlsplit(summary["url"]), summary["models"][0]
    address = (str(url.hostname), int(url.port or 0))
    client = OpenAI(base_url=f"{summary['url']}/v1", api_key="none", max_retries=0, timeout=options.seconds + 60)
    Wave().ask(client, model, 1)  # to warm up
    memory, waves, seconds = [_memory(process.pid)], [], []
    lingering: list[threading.Thread] = []
    good = options.clients - options.slow - options.cut
    for number in range(options.waves):
        wave = Wave()
        threads = [threading.Thread(target=wave.ask, args=(client, model, place)) for place in range(good)]
        bad = [threading.Thread(target=wave.misbehave, args=(address, model, place, True)) for place in range(options.slow)]
        bad += [threading.Thread(target=wave.misbehave, args=(address, model, place, False)) for place in range(options.cut)]
        everyone = [*threads, *bad]
        random.Random(number).shuffle(everyone)
        started = time.perf_counter()
        for thread in everyone:
            thread.start()
        for thread in threads:
            thread.join()
        seconds.append(time.perf_counter() - started)
        lingering += bad
        waves.append(wave)
        memory.append(_memory(process.pid))
    for thread in lingering:
        thread.join()
    client.close()
    served = sorted(time for wave in waves for time in wave.served)
    refused = [one for wave in waves for one in wave.refused]
    lost = [one for wave in waves for one in wave.lost]
    share = len(served) / (good * options.waves)
    print(f"{model}: {options.waves} waves of {options.clients} clients, {options.slow} slow to send, {options.cut} cut off")
    print(f"normal clients served: {len(served)} of {good * options.waves} ({share:.1%})")
    print(f"lost without a word: {len(lost)} {' '.join(sorted(set(lost)))}".rstrip())
    for status, count in sorted(collections.Counter(status for status, _ in refused).items()):
        after = [seconds for found, seconds in refused if found == status and seconds is not None]
        print(f"refused with {status}: {count}, Retry-After {f'{min(after)} to {max(after)} s' if after else 'missing'}")
    parts = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    quantiles = {name: served[min(len(served) - 1, int(part * len(served)))] for name, part in parts.items()}
    print("   ".join(f"{name} {value:.2f} s" for name, value in quantiles.items()))
    print(f"memory in MiB, before and after each wave: {', '.join(f'{value:.0f}' for value in memory)}")
    print(f"seconds of each wave: {', '.join(f'{value:.1f}' for value in seconds)}")
    result = {"benchmark": "serving", "ours": round(share, 4), "peer": 1.0, "ratio": round(share, 4), "unit": "served", "n": good}
    result |= {"model": model, "clients": options.clients, "waves": options.waves, "refused": len(refused), "lost": len(lost)}
    result |= {name: round(value, 3) for name, value in quantiles.items()} | {"memory": [round(value, 1) for value in memory]}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
