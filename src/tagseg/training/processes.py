"""Which processes share a run: one, or those that `accelerate launch` or `torchrun` started."""

import os

import torch
from accelerate import PartialState


def processes() -> PartialState:
    """The processes of this run."""
    return PartialState(cpu=train_on_cpu())


def train_on_cpu() -> bool:
    """Whether to train on the CPU; accelerate has to be told so, or processes without GPUs do not find each other."""
    asked = os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes")
    return asked or ("LOCAL_RANK" in os.environ and not torch.cuda.is_available())
