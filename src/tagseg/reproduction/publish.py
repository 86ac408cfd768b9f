"""Keep what runs measured, without their weights and without a word about the machine's folders.

python -m tagseg.reproduction.publish runs results
"""

import json
import sys
from pathlib import Path, PurePath
from typing import Any

from tagseg.reproduction.measurements import MEASUREMENTS, measurement_file
from tagseg.reproduction.paper import RUNS
from tagseg.training import journal
from tagseg.training.run_folder import CONFIG, read_config


def publish(runs: Path, results: Path) -> list[str]:
    """Copy each known run's configuration, journal and measurements; the names of the runs that were there.

    Args:
        runs: the folder that `tagseg reproduce` wrote to.
        results: a folder for each run is made there.
    """
    found = [run for run in RUNS if (runs / run / CONFIG).is_file()]
    if not found:
        raise ValueError(f"{runs}: holds no run of the paper's tables; name the folder given to tagseg reproduce --out")
    for run in found:
        source, target = runs / run, results / run
        target.mkdir(parents=True, exist_ok=True)
        (target / CONFIG).write_text(json.dumps(_without_folders(read_config(source)), indent=2) + "\n")
        for file in (source / journal.FILE, *(measurement_file(source, name) for name in MEASUREMENTS)):
            if file.is_file():
                (target / file.name).write_bytes(file.read_bytes())
    return found


def _without_folders(value: Any) -> Any:
    """The same with the last part of every path alone; nothing else in a configuration has a slash."""
    if isinstance(value, dict):
        return {key: _without_folders(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_without_folders(part) for part in value]
    return PurePath(value).name if isinstance(value, str) and "/" in value else value


def main() -> None:
    """Publish a folder of runs."""
    if len(sys.argv) != 3:
        sys.exit("usage: python -m tagseg.reproduction.publish RUNS RESULTS")
    try:
        print("published:", ", ".join(publish(Path(sys.argv[1]), Path(sys.argv[2]))))
    except (ValueError, OSError) as error:
        sys.exit(f"tagseg: {error}")


if __name__ == "__main__":
    main()
