"""Command line: one command for each function of `tagseg.api`.

Commands are listed in the order in which their modules are imported.
"""

# isort: off
from tagseg.cli import training, prediction, measurement
from tagseg.cli._app import app, main
# isort: on

__all__ = ["app", "main", "measurement", "prediction", "training"]
