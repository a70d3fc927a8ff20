"""Tables of cases that take a millisecond each, as one test: pytest takes several to collect, run and report a test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def each_row(names: str | Sequence[str], rows: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """As ``pytest.mark.parametrize``, but one test for all rows. All are tried; each error names its row."""
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    cases = [dict(zip(keys, row if len(keys) > 1 else [row], strict=True)) for row in rows]
    assert cases

    def decorate(test: Callable[..., None]) -> Callable[[], None]:
        def all_rows() -> None:
            errors: list[BaseException] = []
            for case in cases:
                try:
                    test(**case)
                except (Exception, pytest.fail.Exception) as error:  # the latter of `pytest.raises`
                    error.add_note(f"row: {case!r:.500}")
                    errors.append(error)
            if errors:
                raise BaseExceptionGroup(f"{len(errors)} of {len(cases)} rows", errors)

        all_rows.__name__, all_rows.__doc__, all_rows.__module__ = test.__name__, test.__doc__, test.__module__
        return all_rows

    return decorate
