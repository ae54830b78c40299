"""Models on the Hugging Face Hub: hf:USER/NAME in place of a path."""

from pathlib import Path

from cli.errors import UserError
from cli.optional import optional_library

PREFIX = "hf:"


def is_on_hub(path: Path) -> bool:
    return path.as_posix().startswith(PREFIX)


def download(path: Path, file: str) -> Path:
    """Return the local copy of a file of the model hf:USER/NAME, from the cache of huggingface_hub if it is up to date.

    Raises UserError if there is no such model or file, or neither the Hub nor a copy can be reached.
    """
    name = path.as_posix()
    hub = optional_library("huggingface_hub", name)
    try:
        return Path(hub.hf_hub_download(name.removeprefix(PREFIX), file))
    except Exception as error:  # of the library, the network or the Hub
        reason = str(error).strip().partition("\n")[0]
        raise UserError(f"{name}: cannot be downloaded: {type(error).__name__}: {reason}") from None
