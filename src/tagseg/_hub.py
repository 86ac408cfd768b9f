"""Names of models and their files, and models on the Hugging Face hub; torch is not imported.

Models of the hub come from the cache of its client, or are downloaded into it.
"""

import re
import threading
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue

from tagseg.errors import WeightsError, first_line

DEFAULT_MODEL = "default"
MODEL_FILE = "model.safetensors"  # the model in the folder of a run
CHECKPOINT_FILE = "checkpoint.safetensors"  # the state of a run: the network and the optimizer
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_FILE_SUFFIXES = (".safetensors", ".onnx", ".pth", ".pt", ".pt2")
_SECONDS_TO_ANSWER = 3.0


def is_hub_name(name: str | Path) -> bool:
    """Whether a text reads as `organization/name`; a path that exists comes first, and the caller looks for it."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None and not name.endswith(_FILE_SUFFIXES)


@cache  # a command looks for its model before torch is imported, and again when it loads it
def find_on_hub(name: str, file: str) -> Path:
    """Path of a repository's file in the cache of the hub's client, which downloads it if the hub can be reached.

    Args:
        name: Repository, `organization/name`.
        file: Name of the file.

    Raises:
        WeightsError: The repository or the file does not exist, or there is no copy of it and the hub is out of reach.
    """
    from huggingface_hub import constants, hf_hub_download  # slow to import
    from huggingface_hub.errors import EntryNotFoundError, HFValidationError, RepositoryNotFoundError

    endpoint = constants.ENDPOINT
    is_online = is_reachable()  # the client would retry for a minute
    try:
        return Path(hf_hub_download(name, file, local_files_only=not is_online))
    except (RepositoryNotFoundError, HFValidationError):
        problem = f"{name}: does not exist, neither here nor on {endpoint}"
        advice = "name a run folder, a model file, or a repository of the hub (log in by hf auth if it is private)"
    except (OSError, EntryNotFoundError) as error:
        advice = "name a run folder or a model file"
        if not is_online:
            reason = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else f"{endpoint} cannot be reached"
            problem = f"{name}: does not exist here, and {reason}"
            advice += ", or copy the hub's cache from where the network is (HF_HOME)"
        elif isinstance(error, EntryNotFoundError):
            problem = f"{name}: this repository of the hub has no {file}"
        else:
            reason = first_line(error)
            problem = f"{name}: could not be downloaded from {endpoint} ({reason})"
    raise WeightsError(problem, advice)


def is_reachable(url: str = "") -> bool:
    """Whether a server answers within seconds, by way of a proxy if the environment names one.

    Args:
        url: The server; the Hugging Face hub by default.
    """
    answers = _asked.pop(url, None) or _ask(url)
    try:
        return answers.get(timeout=_SECONDS_TO_ANSWER)
    except Empty:
        return False


def ask_early() -> None:
    """Ask whether the hub is reachable, for the next `is_reachable`; torch is imported meanwhile."""
    _asked[""] = _ask("")


_asked: dict[str, SimpleQueue[bool]] = {}


def _ask(url: str) -> SimpleQueue[bool]:
    """Ask a server in a thread, since a lookup of its name may outlast any timeout; the queue gets the answer."""
    answers: SimpleQueue[bool] = SimpleQueue()

    def ask() -> None:
        from huggingface_hub import constants, get_session  # slow to import

        try:
            if not constants.HF_HUB_OFFLINE:
                get_session().head(url or constants.ENDPOINT, timeout=_SECONDS_TO_ANSWER)
        except Exception:  # any error: not reachable
            answers.put(False)
        else:
            answers.put(not constants.HF_HUB_OFFLINE)

    threading.Thread(target=ask, daemon=True).start()
    return answers
