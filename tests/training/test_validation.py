import math

import pytest
import torch
from sklearn.metrics import average_precision_score
from torch import Tensor

from tagseg.models import Network, build_network
from tagseg.training.objective import TagObjective
from tagseg.training.recipe import PseudoLabelSettings
from tagseg.training.validation import mean_average_precision, validate
from tests.training.small_run import small_data, small_recipe

SETTINGS = small_recipe("pseudo_labels.min_threshold=0.05").pseudo_labels


@pytest.fixture
def network() -> Network:
    """Build a network whose masks are distinct enough for some pseudo labels of all of an image's classes."""
    network = build_network(small_recipe().model, small_data()[1].classes)
    with torch.no_grad():
        network.get_parameter("decoder.8.weight").mul_(20)
    return network


def read_images() -> tuple[Tensor, Tensor]:
    """Read the validation images and their labels."""
    data = small_data()[1]
    images, labels = zip(*(data[index] for index in range(len(data))), strict=True)
    return torch.stack(images), torch.stack(labels)


@pytest.mark.parametrize("settings", [None, SETTINGS], ids=["labels", "pseudo labels"])
def test_results_do_not_depend_on_the_batches(network: Network, settings: PseudoLabelSettings | None) -> None:
    images, labels = read_images()
    expected = validate(network, [(images, labels)], TagObjective(settings))
    result = validate(network, list(zip(images.split(3), labels.split(3), strict=True)), TagObjective(settings))
    assert (result.loss > result.classification) == (settings is not None)
    assert result.loss == pytest.approx(expected.loss, rel=1e-4)
    assert result.classification == pytest.approx(expected.classification, rel=1e-4)
    assert torch.allclose(result.scores, expected.scores, atol=1e-5)
    assert torch.equal(result.labels, labels)
    assert result.average_precision == mean_average_precision(result.scores, labels)


def test_network_is_not_changed(network: Network) -> None:
    network.train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    modes = {name: module.training for name, module in network.named_modules()}
    validate(network, [read_images()], TagObjective(SETTINGS))
    assert {name: module.training for name, module in network.named_modules()} == modes
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())


def test_mean_average_precision_equals_scikit_learn() -> None:
    scores, labels = torch.rand(50, 4), (torch.rand(50, 4) < 0.3).int()
    labels[:, 2] = 0  # classes that all images have, or none, do not count
    labels[:, 3] = 1
    expected = average_precision_score(labels[:, :2].numpy(), scores[:, :2].numpy())
    assert mean_average_precision(scores, labels) == pytest.approx(expected)
    assert math.isnan(mean_average_precision(scores[:, 2:], labels[:, 2:]))
