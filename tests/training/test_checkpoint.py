from pathlib import Path

import pytest
import torch

import tagseg
from tagseg._hub import CHECKPOINT_FILE
from tagseg.errors import WeightsError
from tagseg.models import Network, build_network
from tagseg.training.checkpoint import TrainState, load_checkpoint, read_train_state, save_checkpoint
from tests.training.small_run import small_recipe


def make_network() -> tuple[Network, torch.optim.Optimizer]:
    """Build a channels-last network and the fused optimizer that training uses on a GPU."""
    torch.manual_seed(0)
    network = build_network(small_recipe().model, ("dog", "sofa")).to(memory_format=torch.channels_last)
    return network, torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, fused=True)


def step(network: Network, optimizer: torch.optim.Optimizer) -> None:
    torch.manual_seed(1)  # for the gate and dropout
    optimizer.zero_grad()
    network(torch.ones(2, 3, 48, 48).to(memory_format=torch.channels_last)).logits.square().mean().backward()
    optimizer.step()


def test_optimizer_state_is_restored_in_the_memory_layout_of_the_weights(tmp_path: Path) -> None:
    network, optimizer = make_network()
    step(network, optimizer)
    save_checkpoint(tmp_path, network, optimizer, TrainState(step=1))
    restored, restored_optimizer = make_network()
    assert load_checkpoint(tmp_path, restored, restored_optimizer) == TrainState(step=1)
    for parameter, state in restored_optimizer.state.items():
        assert state["momentum_buffer"].stride() == parameter.stride()
    step(network, optimizer)
    step(restored, restored_optimizer)
    for expected, parameter in zip(network.parameters(), restored.parameters(), strict=True):
        assert torch.equal(parameter, expected)


def test_damaged_checkpoints_are_named(tmp_path: Path) -> None:
    network, optimizer = make_network()
    (tmp_path / CHECKPOINT_FILE).write_bytes(b"not a checkpoint")
    with pytest.raises(WeightsError, match=f"{CHECKPOINT_FILE} is not a readable file of weights"):
        read_train_state(tmp_path)
    with pytest.raises(WeightsError, match=f"{CHECKPOINT_FILE} is not a readable file of weights"):
        load_checkpoint(tmp_path, network, optimizer)
    tagseg.save_model(network, tmp_path / CHECKPOINT_FILE)
    with pytest.raises(WeightsError, match="is not a checkpoint of this version"):
        read_train_state(tmp_path)


def test_checkpoint_of_another_network_is_refused(tmp_path: Path) -> None:
    network, optimizer = make_network()
    save_checkpoint(tmp_path, network, optimizer, TrainState(step=1))
    other = build_network(small_recipe("model.width=32").model, ("dog", "sofa"))
    with pytest.raises(WeightsError, match="does not belong to this run's network"):
        load_checkpoint(tmp_path, other, torch.optim.SGD(other.parameters(), lr=0.1))
