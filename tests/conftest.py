"""What all tests share: the bundled models, for the tests marked ``real``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cirf.assets import resolve
from cirf.errors import CirfError


@pytest.fixture(scope="session")
def bundled() -> Callable[[str], Path]:
    """``bundled("smollm2-135m-instruct")``: the model's folder; the test is skipped where it cannot be fetched."""

    def folder(name: str) -> Path:
        try:
            return Path(resolve(f"bundled:{name}"))
        except CirfError as error:
            pytest.skip(str(error))

    return folder
