"""Texts of the page of analyses."""

from __future__ import annotations

import pytest

from cirf.report.analyses import in_code


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("set `codebook.size` to 8", "set <code>codebook.size</code> to 8"),
        ("`a` and `b c`", "<code>a</code> and <code>b c</code>"),
        ("a ` b `c`", "a ` b <code>c</code>"),
        ("`<b>`", "<code>&lt;b&gt;</code>"),
        ("no code, `` and ` `", "no code, `` and ` `"),
    ],
)
def test_what_stands_in_backticks_is_code_and_the_rest_text(text: str, told: str) -> None:
    assert str(in_code(text)) == told
