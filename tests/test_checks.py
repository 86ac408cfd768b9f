import numpy as np
import pytest
import torch

from tagseg._checks import like, require_finite, require_shape, to_tensors


def test_values_that_are_not_finite_are_counted() -> None:
    require_finite("masks", torch.zeros(3))
    require_finite("masks", torch.zeros(3, dtype=torch.uint8))
    require_finite("masks", torch.zeros(3, device="meta"))
    with pytest.raises(ValueError, match="^masks has 2 NaN or infinite values of 3; every value must be finite$"):
        require_finite("masks", torch.tensor([0, torch.nan, -torch.inf]))


def test_shapes_are_named() -> None:
    require_shape("masks", torch.zeros(1, 2, 3, 4), "[B, C, H, W]")
    with pytest.raises(ValueError, match=r"^masks must be \[B, C, H, W\], got a tensor of shape \[2, 3, 4\]$"):
        require_shape("masks", torch.zeros(2, 3, 4), "[B, C, H, W]")
    with pytest.raises(ValueError, match=r"^masks must be a tensor \[H, W\], got ndarray; torch.from_numpy makes one$"):
        require_shape("masks", np.zeros((3, 4)), "[H, W]")


def test_arrays_share_their_memory_with_the_tensors() -> None:
    array, tensor = np.zeros((2, 3)), torch.zeros(2, 3)
    (from_array,) = to_tensors(image=array, present=None)
    from_array[0, 0] = 7
    assert array[0, 0] == 7
    assert to_tensors(image=tensor)[0] is tensor


def test_results_are_of_the_kind_of_the_argument() -> None:
    result = torch.rand(2, 3)
    assert like(result, torch.zeros(1)) is result
    array = like(result, np.zeros(1))
    assert isinstance(array, np.ndarray)
    assert np.array_equal(array, result.numpy())
