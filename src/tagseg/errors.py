"""Errors that a user can fix: one line each, saying what is wrong, where, and what to do.

Whatever else is raised is a bug in tagseg, or a wrong argument to one of its functions (`ValueError`, `TypeError`).
"""

from collections.abc import Iterable
from difflib import get_close_matches

# How an advice names an argument: in Python, and on the command line.
_ARGUMENTS = {
    "batch_size": ("batch_size=", "--batch-size"),
    "classes": ("classes=", "--classes"),
    "data": ("data=", "--data"),
    "default_model": ("model={'pretrained': 'default'}", "--set model.pretrained=default"),
    "every": ("every=", "--every"),
    "format": ("format=", "--format"),
    "images": ("images=", "--images"),
    "masks": ("masks=", "--masks"),
    "model": ("model=", "--model"),
    "out": ("out=", "--out"),
    "overwrite": ("overwrite=True", "--overwrite"),
    "password": ("password=", "--password or TAGSEG_PASSWORD"),
    "port": ("port=", "--port"),
    "pretrained": ("model={'pretrained': PATH}", "--set model.pretrained=PATH"),
    "ray": ("ray=", "--ray"),
    "sbd": ("sbd=", "--sbd"),
    "separator": ("separator=", "--separator"),
    "size": ("size=", "--size"),
    "skip_bad": ("skip_bad=True", "--skip-bad"),
    "skip_existing": ("skip_existing=True", "--skip-existing"),
    "split": ("split=", "--split"),
    "tags": ("tags=", "--tags"),
    "val": ("val=", "--val"),
    "voc": ("voc=", "--voc"),
    "workers": ("workers=", "--workers"),
}


_MAX_NAMES = 30  # names of a registry that an error lists; of a larger one it lists the nearest


class TagsegError(Exception):
    """Base of all errors that a user can fix.

    Args:
        problem: What is wrong, and where.
        advice: What to do. It may name arguments in braces, such as `name their folder with {images}`, which read
            `images=` in Python and `--images` on the command line.
    """

    def __init__(self, problem: str, advice: str = "") -> None:
        super().__init__(problem, advice)
        self.problem = problem
        self.advice = advice

    def __str__(self) -> str:
        return self._line(python=True)

    def for_cli(self) -> str:
        """Message that names options of the command line in place of Python's arguments."""
        return printable(" ".join(self._line(python=False).split()))

    def _line(self, *, python: bool) -> str:
        names = {name: spelling[0 if python else 1] for name, spelling in _ARGUMENTS.items()}
        return f"{self.problem}; {self.advice.format(**names)}" if self.advice else self.problem


class DataError(TagsegError, ValueError):
    """A dataset, an image or a mask cannot be used."""


class ConfigError(TagsegError, ValueError):
    """A setting, a recipe, a device or a folder of a run cannot be used."""


class WeightsError(TagsegError, ValueError):
    """A file of weights or a model cannot be used."""


class ProcessLost(TagsegError, RuntimeError):  # noqa: N818  as Interrupted
    """Another process of a run, or one of its data workers, has ended."""


class Interrupted(TagsegError):  # noqa: N818  not an error
    """Training was asked to stop, and did so at a checkpoint."""


def printable(text: str) -> str:
    """Text for a terminal: control characters, which names of files and classes may have, become escapes like \\x1b."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def first_line(error: BaseException) -> str:
    """First line of another library's error, or the name of its type if it has no text."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def unknown_name(
    kind: str, name: object, known: Iterable[str], *, more: str = "", hidden: Iterable[str] = ()
) -> ConfigError:
    """Error for a name that is not in a registry; it lists the known names and the nearest of them.

    Args:
        kind: What the name should have named.
        name: What was given.
        known: Names to list.
        more: Further names in words, for registries too long to list.
        hidden: Names that are not listed but may be the nearest.
    """
    known = sorted(known)
    nearest = get_close_matches(str(name), [*known, *hidden], n=1)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    if len(known) > _MAX_NAMES:
        nearest_names = get_close_matches(str(name), known, n=_MAX_NAMES // 4, cutoff=0)
        more = f" and {len(known) - len(nearest_names)} more{more}"
        known = nearest_names
    return ConfigError(f"unknown {kind} {name!r}; known: {', '.join(known)}{more}.{hint}")
