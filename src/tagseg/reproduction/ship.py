"""Make a trained run the model that comes with tagseg.

python -m tagseg.reproduction.ship runs/compact
"""

import sys
from pathlib import Path

from tagseg.models.files import MODEL_FILE, load_model, read_notes, save_model
from tagseg.predict.predictor import DEFAULT_FOLDER

MOST_BYTES = 16 * 2**20  # everyone who installs tagseg downloads it


def ship(run: Path, target: Path = DEFAULT_FOLDER) -> None:
    """Write a run's model in half precision, with its thresholds.

    Args:
        run: the run's folder.
        target: the folder of the default model.
    """
    source, file = run / MODEL_FILE, target / MODEL_FILE
    if not source.is_file():
        raise ValueError(f"{run}: this folder holds no {MODEL_FILE}; name a run's folder")
    target.mkdir(parents=True, exist_ok=True)
    packed = target / f"{MODEL_FILE}.packed"
    save_model(load_model(source), packed, notes=read_notes(source), half=True)
    if (size := packed.stat().st_size) > MOST_BYTES:
        packed.unlink()
        raise ValueError(
            f"{run}: its model takes {size / 2**20:.1f} MiB in half precision, and {MOST_BYTES / 2**20:.0f} are allowed"
        )
    packed.replace(file)


def main() -> None:
    """Ship a run."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m tagseg.reproduction.ship RUN")
    try:
        ship(Path(sys.argv[1]))
    except (ValueError, OSError) as error:
        sys.exit(f"tagseg: {error}")
    print(f"shipped: {DEFAULT_FOLDER / MODEL_FILE}")


if __name__ == "__main__":
    main()
