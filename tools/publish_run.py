"""Copy the settings, logs and evaluations of runs into results/, without weights and without local paths.

python -m tools.publish_run runs results
"""

import json
from pathlib import Path, PurePath
from typing import Any

from tagseg.errors import DataError
from tagseg.reproduction.measurements import MEASUREMENTS, measurement_file
from tagseg.reproduction.paper import RUNS
from tagseg.training.run_folder import CONFIG_FILE, METRICS_FILE, read_config
from tools._documents import run_tool


def publish(runs: Path, results: Path) -> list[str]:
    """Copy the configuration, log and evaluations of each run of the paper's tables.

    Args:
        runs: Folder of the runs of `tagseg reproduce`.
        results: Folder that gets a folder for each run.

    Returns:
        The names of the runs.
    """
    run_names = [run for run in RUNS if (runs / run / CONFIG_FILE).is_file()]
    if not run_names:
        raise DataError(f"{runs}: holds no run of the paper's tables", "name the folder of tagseg reproduce --out")
    for run in run_names:
        source, target = runs / run, results / run
        target.mkdir(parents=True, exist_ok=True)
        (target / CONFIG_FILE).write_text(json.dumps(_without_folders(read_config(source)), indent=2) + "\n")
        for file in (source / METRICS_FILE, *(measurement_file(source, name) for name in MEASUREMENTS)):
            if file.is_file():
                (target / file.name).write_bytes(file.read_bytes())
    return run_names


def _without_folders(value: Any) -> Any:
    """Reduce every path to its last part; no other text in a configuration has a slash."""
    if isinstance(value, dict):
        return {key: _without_folders(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_without_folders(part) for part in value]
    return PurePath(value).name if isinstance(value, str) and "/" in value else value


def _publish_and_report(runs: Path, results: Path) -> None:
    print("published:", ", ".join(publish(runs, results)))


if __name__ == "__main__":
    run_tool(_publish_and_report, __doc__, "runs", "results")
