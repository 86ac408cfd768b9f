"""The command line itself, to which each module of commands adds its own, and how errors are printed."""

import logging
import signal
import sys
import traceback
from typing import Annotated

import typer

import tagseg  # lazy: torch takes seconds to import, which --help and a wrong path should not wait for
from tagseg.errors import Interrupted, TagsegError, printable

app = typer.Typer(
    name="tagseg",
    help="Image tags in, segmentation masks out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(tagseg.__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Image tags in, segmentation masks out."""


def main() -> None:
    """Run a command; errors that a user can fix are one line."""
    logger = logging.getLogger("tagseg")
    logger.setLevel(logging.INFO)
    handler = logging.StreamHandler()  # messages of the library, on stderr
    handler.format = lambda record: printable(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        app()
    except Interrupted as error:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would print a traceback of torch's exit
        print(f"tagseg: {error.for_cli()}", file=sys.stderr)
        sys.exit(130)  # as after Ctrl-C in any command
    except TagsegError as error:
        sys.exit(f"tagseg: {error.for_cli()}")
    except MemoryError:
        sys.exit("tagseg: the memory of this machine is full; close other programs, or use smaller files or images")
    except Exception:
        traceback.print_exc()
        sys.exit(
            f"tagseg {tagseg.__version__}: this is a bug in tagseg, not in your data; please open an issue in its "
            "repository with the command and the traceback above"
        )
    finally:
        logger.removeHandler(handler)
