"""Make the model of a run the default model of the package.

python -m tools.ship_model runs/compact
"""

from pathlib import Path

from tagseg._hub import MODEL_FILE
from tagseg.errors import WeightsError
from tagseg.models.serialization import DEFAULT_FOLDER, load_model, read_notes, save_model
from tools._documents import run_tool

MAX_BYTES = 16 * 2**20  # it is part of every download of the package


def ship(run: Path, target: Path = DEFAULT_FOLDER) -> None:
    """Write a run's model in half precision, with its thresholds.

    Args:
        run: Folder of the run.
        target: Folder of the default model.
    """
    source, file = run / MODEL_FILE, target / MODEL_FILE
    if not source.is_file():
        raise WeightsError(f"{run}: this folder holds no {MODEL_FILE}", "name a run folder")
    target.mkdir(parents=True, exist_ok=True)
    temporary = target / f"{MODEL_FILE}.part"
    save_model(load_model(source), temporary, notes=read_notes(source), half=True)
    if (size := temporary.stat().st_size) > MAX_BYTES:
        temporary.unlink()
        raise WeightsError(
            f"{run}: its model has {size / 2**20:.1f} MiB in half precision, and {MAX_BYTES / 2**20:.0f} are allowed"
        )
    temporary.replace(file)


def _ship_and_report(run: Path) -> None:
    ship(run)
    print(f"shipped: {DEFAULT_FOLDER / MODEL_FILE}")


if __name__ == "__main__":
    run_tool(_ship_and_report, __doc__, "run")
