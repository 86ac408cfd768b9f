import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import tagseg
from tagseg.data import shapes, shapes_masks
from tagseg.data.masks import IGNORE_LABEL, MaskDataset
from tagseg.errors import ConfigError, DataError, Interrupted
from tagseg.models import build_network
from tagseg.training.logging import read_metrics
from tagseg.training.loop import train_network
from tagseg.training.recipe import Recipe
from tagseg.training.supervised import MaskObjective, best_temperature
from tagseg.training.transforms import TrainingImages

SETTINGS = [
    "model.backbone=test_resnet",
    "model.pretrained=false",
    "model.width=16",
    "transforms.crop=48",
    "transforms.scale=[0.8, 1.5]",
    "training.epochs=2",
    "training.batch_size=8",
    "training.warmup_steps=0",
    "training.lr=0.003",
    "training.ema=0.9",
    "training.precision=fp32",
    "inference.size=48",
]


def small_recipe(*changes: str) -> Recipe:
    return Recipe.load("student", [*SETTINGS, *changes])


def run(out: Path, *, stop_after: int | None = None) -> dict[str, torch.Tensor]:
    """Train or resume a small run, and return the weights of its model."""
    out.mkdir(exist_ok=True)
    data, masks, recipe = shapes(40, size=48), shapes_masks(40, size=48), small_recipe()
    torch.manual_seed(0)
    network = build_network(recipe.model, data.classes)
    train, validation = data.subset(range(32)), data.subset(range(32, 40))
    train_network(network, recipe, train, validation, out, masks=(masks, masks), stop_after=stop_after)
    return dict(tagseg.load_model(out / "model.safetensors").state_dict())


@pytest.mark.skipif(torch.cuda.is_available(), reason="sums on a GPU have no fixed order")
def test_resume_is_bit_identical(tmp_path: Path) -> None:
    uninterrupted = run(tmp_path / "uninterrupted")
    for step in (2, 5):
        with pytest.raises(Interrupted):
            run(tmp_path / "resumed", stop_after=step)
    resumed = run(tmp_path / "resumed")
    assert all(torch.equal(value, resumed[name]) for name, value in uninterrupted.items())


def test_loss_ignores_pixels_without_a_label() -> None:
    network = build_network(small_recipe().model, ["a", "b"]).eval()
    images, masks = torch.rand(2, 3, 48, 48), torch.randint(3, (2, 48, 48), dtype=torch.uint8)
    masks[1] = IGNORE_LABEL

    def losses(images: torch.Tensor, masks: torch.Tensor) -> float:
        return MaskObjective(2).losses(network, images, masks, normalize=network.normalize).total.item()

    assert losses(images, masks) == pytest.approx(losses(images[:1], masks[:1]), rel=1e-4)
    assert losses(images[1:], masks[1:]) == 0
    assert MaskObjective(2).labels(masks).tolist() == [[1, 1], [0, 0]]


@pytest.mark.parametrize("scale", [None, (0.3, 0.9), (1.0, 3.0)])
def test_mask_is_transformed_as_its_image(scale: tuple[float, float] | None) -> None:
    """The image of a mask's own values stays equal to the mask, up to interpolation at the borders."""
    data, masks = shapes(4, size=96), shapes_masks(4, size=96)
    settings = small_recipe("transforms.crop=64").with_settings({"transforms": {"scale": scale}}).transforms
    images = TrainingImages(data, settings, 0, masks)

    class MaskImages:
        def read(self, index: int) -> np.ndarray:
            return np.repeat(masks[data.image_ids[index]][..., None] * 40, 3, 2)

    data.images = MaskImages()  # type: ignore[assignment]
    for index in range(4):
        crop, _, mask, _ = images[0, index]
        assert crop.shape[1:] == mask.shape == (64, 64)
        assert mask.dtype == torch.uint8
        is_labeled = mask != IGNORE_LABEL
        assert (crop[0][~is_labeled] == 114).all()
        difference = (crop[0].float() - 40.0 * mask)[is_labeled].abs()
        assert (difference < 20).float().mean() > 0.85


def test_temperature_recovers_the_scale_of_the_logits() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(20000, 5, generator=generator)
    classes = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    assert best_temperature(4 * logits, classes) == pytest.approx(4, rel=0.05)
    assert best_temperature(logits[:0], classes[:0]) == 1


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    recipe = small_recipe("transforms.crop=96", "transforms.scale=[1.0, 1.3]", "training.epochs=8", "inference.size=96")
    tagseg.train_masks("shapes:160", out, recipe=recipe, workers=0)
    return out


@pytest.mark.slow
def test_run_on_masks(trained: Path) -> None:
    """The loss falls, the masks are found, and evaluation, prediction and the report work as for tags."""
    losses = [line["loss"] for line in read_metrics(trained) if line["kind"] == "validation"]
    assert losses[-1] < 0.6 * losses[0]
    model = tagseg.load(trained)
    assert model.settings.background_power == 1
    assert model.settings.temperature != 1
    result = tagseg.evaluate(tagseg.DataSource("shapes:40", split="test"), model=model)
    assert result.mean_iou("true-tags") > 0.35
    page = tagseg.write_report(trained, count=1).read_text()
    assert "This run learned from masks" in page
    assert "never trained" not in page


@pytest.mark.slow
def test_predicted_tags_are_the_argmax_over_all_classes(trained: Path) -> None:
    model = tagseg.load(trained)
    data = shapes(8, split="test")
    for index in range(len(data)):
        image = data.images.read(index)
        for tta in (False, True):
            everything = model.predict(image, tags=model.classes, tta=tta)
            assert np.array_equal(model.predict(image, tta=tta).mask, everything.mask)


def test_recipes_of_the_other_training_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="trains on image tags: its model.method is single-stage"):
        tagseg.train_masks("shapes:8", tmp_path / "run", recipe="default")
    with pytest.raises(ConfigError, match="trains on masks; use train_masks"):
        tagseg.train("shapes:8", tmp_path / "run", recipe="student")
    with pytest.raises(ConfigError, match="background_power of a supervised network must be 1, got 3"):
        tagseg.train_masks("shapes:8", tmp_path / "run", background_power=3.0)


def write_folder(root: Path, *, value: int = 2) -> None:
    for name in ("images", "masks"):
        (root / name).mkdir(parents=True)
    for index in range(4):
        Image.fromarray(np.full((40, 48, 3), 60 * index, np.uint8)).save(root / "images" / f"{index}.jpg")
        mask = np.zeros((40, 48), np.uint8)
        mask[:20] = value if index == 3 else 1 + index % 2
        Image.fromarray(mask).save(root / "masks" / f"{index}.png")


def test_folder_of_images_and_masks(tmp_path: Path) -> None:
    write_folder(tmp_path)
    data = tagseg.DataSource(tmp_path).open()
    assert data.classes == ("class 1", "class 2")
    assert data.labels.tolist() == [[1, 0], [0, 1], [1, 0], [0, 1]]
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    assert tagseg.DataSource(tmp_path).open().classes == ("cat", "dog")
    assert tagseg.DataSource(tmp_path).open_masks()["1"].max() == 2
    tagseg.train_masks(tmp_path, tmp_path / "run", recipe=small_recipe("training.epochs=1"), workers=0, val=tmp_path)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["classes"] == ["cat", "dog"]


def test_mask_with_an_unknown_value_is_named(tmp_path: Path) -> None:
    write_folder(tmp_path, value=7)
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    with pytest.raises(DataError, match=r"3\.png: has the value 7, but the classes only reach 2"):
        tagseg.train_masks(tmp_path, tmp_path / "run", recipe=small_recipe(), workers=0)


def test_data_without_masks_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path)
    (tmp_path / "t.csv").write_text("image,labels\nimages/0.jpg,cat\n")
    (tmp_path / "masks").rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="no masks were found; name their folder or zip with masks="):
        tagseg.train_masks(tmp_path / "t.csv", tmp_path / "run", recipe=small_recipe(), workers=0)


def test_mask_dataset_of_other_ids_is_refused() -> None:
    from tagseg.training.preflight import images_with_mask_labels

    with pytest.raises(DataError, match="none of the 4 images has a mask"):
        images_with_mask_labels(shapes(4), MaskDataset(shapes(1).classes, {}))
