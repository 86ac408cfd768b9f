"""Whole training images and their features from a frozen backbone, computed once, for all epochs."""

import logging
import shutil
import tempfile
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from tagseg._device import multiplies_bfloat16
from tagseg._progress import track
from tagseg.errors import Interrupted
from tagseg.models import Network
from tagseg.training.distributed import StopRequest, ignore_signals, iterate
from tagseg.training.run_folder import FEATURES_PREFIX

_BATCH = 32
_MAX_SHARE = 0.7  # of the free memory of a GPU, or of the free disk

logger = logging.getLogger(__name__)


class FeatureCache:
    """Images of one size and the deep maps of a frozen backbone, in a GPU's memory or in a file mapped into memory.

    The maps are in half precision. Mirror images have maps of their own.

    Args:
        network: Network with a frozen backbone, on its device.
        flip: Whether mirror images are used too.
        folder: Folder for the file, if one is needed; the file is deleted with the cache.
    """

    def __init__(self, network: Network, *, flip: bool, folder: Path) -> None:
        self._network, self._folder = network, folder
        self._device = network.mean.device
        self._num_views = 2 if flip else 1
        self._images, self._maps = torch.empty(0), torch.empty(0)
        self._file: tempfile.TemporaryDirectory[str] | None = None

    def fill(self, images: "Dataset[Tensor]", *, workers: int, stop: StopRequest, quiet: bool) -> bool:
        """Compute the maps of all images, unless there is no room for them.

        Args:
            images: Training images in the order of their positions, uint8 [3, S, S].
            workers: Number of data workers.
            stop: Whether the run was asked to stop.
            quiet: Do not show the progress.

        Returns:
            Whether there was room.

        Raises:
            Interrupted: A signal asked the run to stop.
        """
        count, first = len(images), 0  # type: ignore[arg-type]
        loader = DataLoader(images, _BATCH, num_workers=workers, worker_init_fn=ignore_signals)
        stop.activity = "this batch of images"
        with iterate(loader) as batches:
            for batch in track(batches, "Computing features, batch", len(loader), quiet=quiet):
                maps = torch.stack([self._compute(view) for view in (batch, batch.flip(-1))[: self._num_views]], 1)
                if first == 0 and not self._allocate(count, batch, maps):
                    return False
                last = first + len(batch)
                self._images[first:last].copy_(batch)
                self._maps[first:last].copy_(maps)
                first = last
                if stop.received:
                    raise Interrupted("stopped while computing features", "run the same command again to start over")
        return True

    def read(self, origins: Tensor) -> tuple[Tensor, Tensor]:
        """Images, uint8 [B, 3, S, S], and their deep maps, [B, C, h, w], on the device.

        Args:
            origins: Position of each image and whether it is mirrored, int64 [B, 2], on the CPU.
        """
        positions, mirrored = origins.to(self._maps.device, non_blocking=True).unbind(1)
        images = self._images[positions]
        images = torch.where(mirrored.bool()[:, None, None, None], images.flip(-1), images)
        maps = self._maps[positions, mirrored].to(self._device, non_blocking=True)
        return images, maps.float().contiguous(memory_format=torch.channels_last)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Free the memory, or delete the file."""
        self._images, self._maps = torch.empty(0), torch.empty(0)
        if self._file is not None:
            self._file.cleanup()

    @torch.no_grad()
    def _compute(self, images: Tensor) -> Tensor:
        x = self._network.normalize(images.to(self._device).float() / 255)
        with torch.autocast(self._device.type, torch.bfloat16, enabled=multiplies_bfloat16(self._device)):
            _, maps = self._network.backbone(x)
        return maps.half()  # type: ignore[no-any-return]

    def _allocate(self, count: int, batch: Tensor, maps: Tensor) -> bool:
        """Reserve room for all images and maps, on the GPU or in files; False if there is none."""
        parts = [((count, *part.shape[1:]), part.dtype) for part in (batch, maps)]
        size = sum(prod(shape) * dtype.itemsize for shape, dtype in parts)
        if self._device.type == "cuda" and size <= _MAX_SHARE * torch.cuda.mem_get_info(self._device)[0]:
            self._images, self._maps = (torch.empty(shape, dtype=d, device=self._device) for shape, d in parts)
            return True
        if size > _MAX_SHARE * shutil.disk_usage(self._folder).free:
            logger.warning("No room for %.0f GB of features: they are computed in every step", size / 1e9)
            return False
        self._file = tempfile.TemporaryDirectory(prefix=FEATURES_PREFIX, dir=self._folder)
        self._images, self._maps = (
            torch.from_file(str(Path(self._file.name) / name), shared=True, size=prod(shape), dtype=dtype).view(shape)
            for name, (shape, dtype) in zip(("images", "maps"), parts, strict=True)
        )
        return True
