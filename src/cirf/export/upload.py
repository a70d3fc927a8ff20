"""Files sent to a repository of a hub, in one commit."""

from __future__ import annotations

import re
import sys
from typing import Any, Literal

from cirf.errors import CirfError
from cirf.export.parcel import Parcel

Kind = Literal["model", "dataset"]

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?")


def check_name(repository: str) -> None:
    """``CirfError`` if it is not ``OWNER/NAME``."""
    parts = repository.split("/")
    if len(parts) != 2 or not all(_NAME.fullmatch(part) for part in parts) or "--" in repository or ".." in repository:
        raise CirfError(f"--to {repository}: expected OWNER/NAME, letters, digits, '-', '_' and '.' alone")


def own_token() -> str | None:
    """The token of the usual environment: ``HF_TOKEN``, or that of ``hf auth login``."""
    from huggingface_hub import get_token

    return get_token()


def upload(parcel: Parcel, repository: str, kind: Kind, public: bool, message: str) -> str:
    """Send a parcel to a repository, created if missing, private unless ``public``; returns the commit's address.

    Existing files with the same names are replaced, others stay. ``CirfError`` where there is no token, a repository is
    public although ``public`` is not set (or the reverse), or the hub refuses.
    """
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.errors import RepositoryNotFoundError
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    from cirf.assets.hub import quiet

    token = own_token()
    if token is None:
        raise CirfError("no token for the hub: set HF_TOKEN to one that may write, or run `hf auth login`")
    api = HfApi(token=token)
    shown = not are_progress_bars_disabled()
    quiet()
    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        try:
            private = bool(api.repo_info(repository, repo_type=kind).private)
        except RepositoryNotFoundError:
            api.create_repo(repository, repo_type=kind, private=not public)
        else:
            _check_visibility(repository, private, public)
        added = [CommitOperationAdd(piece.name, _data(piece.data)) for piece in parcel.pieces]
        return str(api.create_commit(repository, added, commit_message=message, repo_type=kind).commit_url)
    except CirfError:
        raise
    except Exception as error:  # errors of the hub, its client library or the system have no common base class
        raise CirfError(f"{repository}: the hub rejects it ({_reason(error, token)}); fix that and push again") from None
    finally:
        if shown:
            enable_progress_bars()


def _check_visibility(repository: str, private: bool, public: bool) -> None:
    if private == public:
        there, advice = ("private", "leave out") if private else ("public", "give")
        raise CirfError(f"{repository}: is there already and is {there}; {advice} --public, or change that in its settings first")


def _data(data: Any) -> Any:
    return data if isinstance(data, bytes) else str(data)


def _reason(error: Exception, token: str) -> str:
    """The first lines of an error and of what caused it, on one line and without the token."""
    summary = [str(one) for one in (error, error.__cause__) if one is not None]
    lines = [line.strip() for text in summary for line in text.splitlines()[:3] if line.strip()]
    text = " ".join(lines) or type(error).__name__
    return re.sub(r"\s+", " ", text.replace(token, "***"))[:300].rstrip(". ")
