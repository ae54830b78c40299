"""Models on the Hugging Face Hub: hf:USER/NAME in place of a path."""

from pathlib import Path

from cli.errors import UserError
from cli.optional import optional_library


def download(name: str, file: str) -> Path:
    """Return the local copy of a file of hf:USER/NAME. Raises UserError if it is neither cached nor available."""
    hub = optional_library("huggingface_hub", name)
    try:
        return Path(hub.hf_hub_download(name.removeprefix("hf:"), file))
    except Exception as error:  # of the library, the network or the Hub
        reason = str(error).strip().partition("\n")[0]
        raise UserError(f"{name}: cannot be downloaded: {type(error).__name__}: {reason}") from None
