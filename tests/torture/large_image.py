"""Measure the memory that the prediction of a very large image takes: python -m tests.torture.large_image [SIDE].

The image is a photo enlarged to 20,000 x 20,000 pixels, or another side, as JPEG and as PNG. Each is predicted by
`tagseg predict` in a process of its own, with its overlay.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PHOTO = Path(__file__).parents[2] / "src/tagseg/photos/chelsea.jpg"
_ENLARGE = """
import sys
from PIL import Image
image = Image.open(sys.argv[1]).convert("RGB").resize((int(sys.argv[2]),) * 2, Image.Resampling.NEAREST)
for file in sys.argv[3:]:
    image.save(file, compress_level=1)
"""


def predict(image: Path, out: Path, megapixels: int) -> tuple[int, float]:
    """Largest resident memory of `tagseg predict` in bytes, and its seconds."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "tagseg", "predict", str(image), "-o", str(out)],
        env={**os.environ, "TAGSEG_MAX_MEGAPIXELS": str(megapixels)},
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{image}: the prediction failed")
    return 1024 * usage.ru_maxrss, time.perf_counter() - start


def main(side: int) -> None:
    """Measure a small photo, and the same one enlarged."""
    with tempfile.TemporaryDirectory() as folder:
        images = [Path(folder) / "large.jpg", Path(folder) / "large.png"]
        # In a process of its own: the largest memory of a process counts from its parent's.
        subprocess.run([sys.executable, "-c", _ENLARGE, str(PHOTO), str(side), *map(str, images)], check=True)
        for number, image in enumerate([PHOTO, *images]):
            memory, seconds = predict(image, Path(folder) / str(number), max(1, side * side // 10**6))
            size = image.stat().st_size
            print(
                f"{image.name}: {size / 2**20:.0f} MiB, {memory / 2**20:.0f} MiB of memory, {seconds:.0f} s", flush=True
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
