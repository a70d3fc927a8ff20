"""The playground: one page with its own style and script, which may run nothing else and ask nobody but its own server."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from pathlib import Path

_HERE = Path(__file__).parent


@functools.cache
def render() -> str:
    """The page. It holds no data: what it shows it asks its server for."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    def read(name: str) -> str:
        return (_HERE / name).read_text(encoding="utf-8")

    environment = Environment(loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined)
    environment.globals["read"] = read
    return environment.get_template("playground.html.j2").render()


def policy(html: str) -> str:
    """The Content-Security-Policy of a page: its one style and its one script by their hashes, and requests to its own server."""
    hashes = [f"'sha256-{_hash(html, tag)}'" for tag in ("script", "style")]
    rules = [f"script-src {hashes[0]}", f"style-src {hashes[1]}", "connect-src 'self'", "img-src data:"]
    return "; ".join(["default-src 'none'", *rules, "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"])


def _hash(html: str, tag: str) -> str:
    (inner,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    return base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
