import torch

from tagseg.benchmarks.train import TrainingSteps


def test_published_step_gives_the_same_weights() -> None:
    weights = []
    for method in ("published", "tagseg"):
        steps = TrainingSteps("test_resnet", 64, 2, torch.device("cpu"))
        steps.draws[:] = torch.tensor([[0.0, 1.0, 2.0, 3.0], [1.0, 1.0, 1.0, 0.0]])  # the published step has no jitter
        torch.manual_seed(0)
        getattr(steps, method)()
        weights.append(torch.cat([parameter.flatten() for parameter in steps.network.parameters()]))
    assert torch.allclose(weights[0], weights[1], atol=1e-5)


def test_step_restores_the_cudnn_setting() -> None:
    before = torch.backends.cudnn.benchmark
    TrainingSteps("test_resnet", 64, 2, torch.device("cpu")).tagseg()
    assert torch.backends.cudnn.benchmark == before
