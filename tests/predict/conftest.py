import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

import tagseg
from tagseg.models import Network
from tagseg.predict.predictor import Predictor
from tagseg.predict.settings import InferenceSettings

Pixels = NDArray[np.uint8]
# Scores of random weights are arbitrary; a threshold of 0 keeps every class. Images keep their own size: it is small.
KEEP_ALL = InferenceSettings(thresholds=0.0, size="native")


@pytest.fixture(scope="session")
def network() -> Network:
    torch.manual_seed(0)
    return tagseg.build_model("resnet18", ["cat", "dog"]).eval()


@pytest.fixture(scope="session")
def predictor(network: Network) -> Predictor:
    return Predictor(network, KEEP_ALL, device="cpu", precision="float32")


@pytest.fixture
def image() -> Pixels:
    return wave_image(64, 80)


def wave_image(height: int, width: int, seed: int = 0) -> Pixels:
    """Generate a smooth color image, [H, W, 3]."""
    phase = np.random.default_rng(seed).uniform(0, 6, (3, 1, 1))
    rows, columns = np.mgrid[:height, :width]
    waves = np.sin(rows / 17 + phase) + np.cos(columns / 23 - 2 * phase)
    return np.asarray((waves + 2) * 63).astype(np.uint8).transpose(1, 2, 0)


def normalize(network: Network, image: Image.Image) -> torch.Tensor:
    """Convert an image to the input of a network, [1, 3, H, W]."""
    x = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float() / 255
    mean, std = (torch.tensor(values)[:, None, None] for values in (network.backbone.mean, network.backbone.std))
    return (x - mean) / std


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a folder with images of two sizes, and a zip beside it."""
    root = tmp_path / "photos"
    (root / "cats").mkdir(parents=True)
    for name, size in (("a.png", (64, 64)), ("b.jpg", (64, 80)), ("cats/c.png", (64, 64)), ("cats/d.png", (64, 64))):
        Image.fromarray(wave_image(*size, seed=len(name))).save(root / name)
    (root / "notes.txt").write_text("not an image")
    with zipfile.ZipFile(tmp_path / "more.zip", "w") as file:
        file.write(root / "a.png", "x/e.png")
        file.write(root / "b.jpg", "f.jpg")
    return root
