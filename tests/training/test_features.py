import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import tagseg
from tagseg._hub import MODEL_FILE
from tagseg.data import shapes
from tagseg.errors import ConfigError, Interrupted
from tagseg.models import Network
from tagseg.training.distributed import StopRequest
from tagseg.training.features import FeatureCache
from tagseg.training.recipe import Recipe
from tagseg.training.transforms import WholeImages
from tests.training.small_run import run, small_recipe

FLIPS_ONLY = [f"transforms.{name}=0" for name in ("brightness", "contrast", "saturation", "hue")]


def frozen_recipe(*changes: str) -> Recipe:
    return small_recipe(
        "model.backbone=test_vit",
        "model.trainable_blocks=0",
        "transforms.area=[1, 1]",
        *FLIPS_ONLY,
        "training.optimizer=adamw",
        *changes,
    )


@pytest.fixture
def network() -> Network:
    torch.manual_seed(0)
    return tagseg.build_model("test_vit", 3, width=16, trainable_blocks=0).eval()


def deep_maps(network: Network, images: Tensor) -> Tensor:
    with torch.no_grad():
        _, maps = network.backbone(network.normalize(images.float() / 255))
    assert isinstance(maps, Tensor)
    return maps


def test_maps_are_those_of_the_images_and_their_mirror_images(network: Network, tmp_path: Path) -> None:
    images = WholeImages(shapes(5, size=64), 48)
    with FeatureCache(network, flip=True, folder=tmp_path) as cache:
        assert cache.fill(images, workers=0, stop=StopRequest(), quiet=True)
        cached, maps = cache.read(torch.tensor([[3, 0], [1, 1]]))
    expected = torch.stack([images[3], images[1].flip(-1)])
    assert torch.equal(cached, expected)
    assert torch.allclose(maps.float(), deep_maps(network, expected), atol=2e-2)  # bfloat16 of values up to 3
    assert not list(tmp_path.iterdir()), "the files of the cache must be gone"


def test_a_full_disk_leaves_the_features_to_every_step(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    free = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    with caplog.at_level(logging.WARNING), FeatureCache(network, flip=True, folder=tmp_path) as cache:
        assert not cache.fill(WholeImages(shapes(5, size=64), 48), workers=0, stop=StopRequest(), quiet=True)
    assert "No room" in caplog.text
    trained = run(tmp_path / "run", frozen_recipe())
    assert torch.isfinite(trained.get_parameter("decoder.0.weight")).all()


def test_features_stop_when_asked_to(network: Network, tmp_path: Path) -> None:
    stop = StopRequest()
    hook = network.backbone.register_forward_hook(lambda *_: setattr(stop, "received", True))  # in the last batch
    with (
        FeatureCache(network, flip=True, folder=tmp_path) as cache,
        pytest.raises(Interrupted, match="stopped while computing features; run the same command again"),
    ):
        cache.fill(WholeImages(shapes(5, size=64), 48), workers=0, stop=stop, quiet=True)
    hook.remove()


@pytest.mark.skipif(torch.cuda.is_available(), reason="sums on a GPU have no fixed order")
def test_run_on_cached_features_resumes_bit_for_bit(tmp_path: Path) -> None:
    recipe = frozen_recipe("training.ema=0.9", "pseudo_labels.teacher=ema", "pseudo_labels.walk_steps=1")
    run(tmp_path / "uninterrupted", recipe)
    with pytest.raises(Interrupted):
        run(tmp_path / "resumed", recipe, stop_after=6)
    run(tmp_path / "resumed", recipe)
    first, second = (tagseg.load_model(tmp_path / name / MODEL_FILE) for name in ("uninterrupted", "resumed"))
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name


def test_frozen_backbone_runs_once_for_each_training_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: dict[bool, int] = {}
    forward: Callable[..., tuple[Tensor | None, Tensor]] = tagseg.models.backbones.TimmViT.forward
    for cached in (True, False):
        num_images = 0

        def count(self: torch.nn.Module, x: Tensor) -> tuple[Tensor | None, Tensor]:
            nonlocal num_images
            num_images += len(x)
            return forward(self, x)

        monkeypatch.setattr(tagseg.models.backbones.TimmViT, "forward", count)
        run(tmp_path / str(cached), frozen_recipe(f"training.cache_features={str(cached).lower()}"))
        counts[cached] = num_images
    train, validation, epochs = 32, 8, 3
    assert counts[True] == 2 * train + epochs * validation
    assert counts[False] == epochs * (train + validation)


@pytest.mark.parametrize("change", ["transforms.area=[0.9, 1]", "transforms.hue=0.1", "transforms.scale=[0.5, 2]"])
def test_cache_is_refused_where_images_change(change: str) -> None:
    with pytest.raises(ConfigError, match=r"training\.cache_features needs whole images"):
        frozen_recipe("training.cache_features=true", change)
    assert not frozen_recipe(change).transforms.only_flips


def test_cache_is_refused_where_the_backbone_learns(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs a frozen vision transformer"):
        run(tmp_path / "run", frozen_recipe("training.cache_features=true", "model.trainable_blocks=1"))


def test_teacher_needs_a_moving_average() -> None:
    with pytest.raises(ConfigError, match=r"set training\.ema"):
        small_recipe("pseudo_labels.teacher=ema")


def test_recipe_dinov2_computes_its_features_once() -> None:
    recipe = Recipe.load("dinov2", ["model.pretrained=false"])
    network = tagseg.build_model(recipe.model.backbone, 20, width=16, pretrained=False, trainable_blocks=0)
    assert recipe.transforms.only_flips
    assert network.backbone.is_frozen
