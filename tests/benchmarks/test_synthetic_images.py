import torch

from tagseg.benchmarks.synthetic_images import COMMON_SIZES, photo_array, photo_like, voc_sizes


def test_generated_photos_have_regions_and_texture() -> None:
    image = photo_like(96, 128).float()
    assert image.shape == (3, 96, 128)
    assert image.std() > 20
    assert (image[..., 1:] - image[..., :-1]).abs().mean() > 1
    assert torch.equal(photo_like(96, 128), photo_like(96, 128))
    assert photo_array(96, 128).shape == (96, 128, 3)


def test_sizes_follow_voc() -> None:
    sizes = voc_sizes(400)
    assert len(sizes) == 400
    assert all(max(size) == 500 and min(size) >= 281 for size in sizes)
    assert sum(size in COMMON_SIZES for size in sizes) >= 200
    assert len(set(sizes)) > 100
    assert voc_sizes(400) == sizes
