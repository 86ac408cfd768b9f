import torch

from tagseg.benchmarks.train import TrainingSteps


def test_published_step_updates_the_weights_as_ours_does() -> None:
    weights = []
    for form in ("published", "tagseg"):
        steps = TrainingSteps("test_resnet", 64, 2, torch.device("cpu"))
        steps.draws[:] = torch.tensor([[0.0, 1.0, 2.0, 3.0], [1.0, 1.0, 1.0, 0.0]])  # the published form has no jitter
        torch.manual_seed(0)
        getattr(steps, form)()
        weights.append(torch.cat([parameter.flatten() for parameter in steps.network.parameters()]))
    assert torch.allclose(weights[0], weights[1], atol=1e-5)


def test_a_step_leaves_cudnn_as_it_was() -> None:
    before = torch.backends.cudnn.benchmark
    TrainingSteps("test_resnet", 64, 2, torch.device("cpu")).tagseg()
    assert torch.backends.cudnn.benchmark == before
