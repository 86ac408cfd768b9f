from pathlib import Path

import torch

from tagseg.models import Network
from tagseg.training.checkpoint import Progress, load_checkpoint, save_checkpoint
from tagseg.training.start import build
from tests.training.small import small_recipe


def learner() -> tuple[Network, torch.optim.Optimizer]:
    """Weights in the layout of training, and the optimiser that it uses on a GPU."""
    torch.manual_seed(0)
    network = build(small_recipe().model, ("dog", "sofa")).to(memory_format=torch.channels_last)
    return network, torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, fused=True)


def step(network: Network, optimiser: torch.optim.Optimizer) -> None:
    torch.manual_seed(1)  # for the gate and dropout
    optimiser.zero_grad()
    network(torch.ones(2, 3, 48, 48).to(memory_format=torch.channels_last)).logits.square().mean().backward()
    optimiser.step()


def test_what_an_optimiser_remembers_comes_back_in_the_layout_of_the_weights(tmp_path: Path) -> None:
    network, optimiser = learner()
    step(network, optimiser)
    save_checkpoint(tmp_path, network, optimiser, Progress(step=1))
    again, optimiser_again = learner()
    assert load_checkpoint(tmp_path, again, optimiser_again) == Progress(step=1)
    for parameter, state in optimiser_again.state.items():
        assert state["momentum_buffer"].stride() == parameter.stride()
    step(network, optimiser)
    step(again, optimiser_again)
    for expected, found in zip(network.parameters(), again.parameters(), strict=True):
        assert torch.equal(found, expected)
