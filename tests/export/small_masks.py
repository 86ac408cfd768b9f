"""A folder of images beside masks, with names, classes and ignored pixels that formats may find hard."""

from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ('traffic light, "red" & <green>', "犬 Überhund " + "x" * 80, "no")
NAMES = ("dog", "a folder/with spaces, ü and 犬", "images/1", "labels.v2", "long-" + "x" * 150)
HEIGHT, WIDTH = 20, 28


def write_small_masks(folder: Path, *, ignored: bool = True) -> Path:
    """Write images/, masks/ and classes.txt; the last image is background, and one has no class but ignored pixels."""
    generator = np.random.default_rng(0)
    for number, name in enumerate(NAMES):
        blocks = generator.integers(0, 4, (HEIGHT // 4, WIDTH // 4), np.uint8)
        mask = np.kron(blocks, np.ones((4, 4), np.uint8))
        mask[generator.random(mask.shape) < 0.1] = 0  # holes of a pixel
        if number >= 3:
            mask[:] = 0
        if ignored and number < 4:
            mask[3:9, 5:11] = 255
        colors = generator.integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
        for image, kind in ((mask, "masks"), (colors, "images")):
            path = folder / kind / f"{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)
    (folder / "classes.txt").write_text("".join(f"{name}\n" for name in CLASSES), encoding="utf-8")
    return folder
