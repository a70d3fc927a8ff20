"""Models on the hub: fetched into the cache of the hub's library, with a one-line error."""

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from cirf.errors import CirfError
from cirf.progress import SILENT, Progress

_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja")
_FOR_OTHERS = ("onnx/*", "openvino/*")  # copies of the weights for other engines
_CHATTER = ("huggingface_hub.utils._http", "huggingface_hub._snapshot_download")


def snapshot(model: str, revision: str | None = None, progress: Progress = SILENT) -> Path:
    """The folder of a hub model in the hub's cache: settings, tokenizer and safetensors, fetched if they are not there.
    ``revision`` is a branch, a tag or a commit (``None``: the main branch). A hub that does not answer is tried once; then the
    cache is used. Raises ``CirfError`` if neither gives the model."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        with without_bars(), progress.task(f"fetching {model}", total=None, unit=""):
            return Path(snapshot_download(model, revision=revision, allow_patterns=[*_FILES], ignore_patterns=[*_FOR_OTHERS]))
    except Exception as error:  # errors of the hub, its client library or the system have no common base class
        name = f"{model} at {revision}" if revision else model
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(". ")
        refused = isinstance(error, HfHubHTTPError)
        raise CirfError(
            f"{name}: {'the hub refuses it' if refused else 'the hub cannot be reached'} ({reason}) and it is not in the cache; "
            f"{'check the id and the revision' if refused else 'check the network'}, or name a folder that holds the model"
        ) from None


@contextlib.contextmanager
def without_bars() -> Iterator[None]:
    """Without the hub library's progress bars, which would overlap ours, and its chatter."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    shown = not are_progress_bars_disabled()
    quiet()
    disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            enable_progress_bars()


@contextlib.contextmanager
def transformers_quiet() -> Iterator[None]:
    """No bar of transformers over the shards of a checkpoint, and no table of weights that do not fit: our own bars and
    messages say what is going on."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    shown = logging.is_progress_bar_enabled() and os.environ.get("HF_HUB_DISABLE_PROGRESS_BARS") != "1"
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def quiet() -> None:
    """Silence the hub library's line for each attempt to reach the hub: its final error is enough."""
    for name in _CHATTER:
        logging.getLogger(name).setLevel(logging.ERROR)
