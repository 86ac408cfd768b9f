"""The part of a predictor that computes: images of one shape in, scores and masks out, within bounded memory."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from tagseg._device import pick_device
from tagseg.data.images import Pixels
from tagseg.errors import unknown_name
from tagseg.models.network import Network
from tagseg.predict.optimize.prepared import prepare
from tagseg.predict.segment import Choose, Found, begin_segment
from tagseg.predict.settings import InferenceSettings
from tagseg.predict.tiles import SMALLEST_TILE, plan_tiles
from tagseg.predict.views import Look, look

MAX_PIXELS = 2048 * 2048
_PRECISIONS = ("auto", "float32", "bfloat16")


class Engine:
    """A network on a device.

    Attributes:
        network: the network that was given.
        prepared: the copy of it, made now, that predicts.
        half: whether it computes in bfloat16 where that is safe.
        batch_size: how many images of usual size are best segmented together: several fill a GPU, one a CPU.
        in_flight: how many batches are best begun before one is finished: a GPU computes while the next is prepared.

    Args:
        network: it is moved to the device; nothing else of it changes, so that one in training can be measured between
            two epochs.
        device: a torch device by name; `auto` stays on the GPU where the network is, or takes the first one if any.
        precision: what the network computes in; `auto` is bfloat16, where that is safe, on devices that are faster in
            it, which halves the time, and float32 elsewhere.
        max_pixels: the most pixels that the network sees at once.
    """

    def __init__(
        self, network: Network, *, device: str = "auto", precision: str = "auto", max_pixels: int = MAX_PIXELS
    ) -> None:
        if network.config.in_channels not in (1, 3):
            raise ValueError(
                f"this network takes {network.config.in_channels} channels, but images are RGB (3) or grey (1); use "
                "load_model and prepare its input yourself"
            )
        if precision not in _PRECISIONS:
            raise unknown_name("precision", precision, _PRECISIONS)
        if max_pixels < SMALLEST_TILE**2:
            raise ValueError(
                f"max_pixels must be at least {SMALLEST_TILE**2}, a tile of {SMALLEST_TILE} x {SMALLEST_TILE}, got "
                f"{max_pixels}"
            )
        here = next(network.parameters()).device
        self.device = here if device == "auto" and here.type != "cpu" else pick_device(device)
        self.network = network.to(self.device)
        self.max_pixels = max_pixels
        self.half = precision == "bfloat16" or (precision == "auto" and _has_bfloat16(self.device))
        self.prepared = prepare(self.network, half=self.half)
        on_gpu = self.device.type == "cuda"
        self.batch_size = 8 if on_gpu else 1
        self.in_flight = 2 if on_gpu else 0
        # CAM divides a mask by its maximum over the image, which a tile cannot know: it sees large ones reduced.
        self._in_tiles = network.config.method != "cam"

    def fit_scales(self, settings: InferenceSettings, pixels: int) -> InferenceSettings:
        """The settings with which an image of so many pixels fits; they differ only for large images and CAM."""
        largest = pixels * max(settings.scales) ** 2
        if self._in_tiles or largest <= self.max_pixels:
            return settings
        factor = (self.max_pixels / largest) ** 0.5
        return replace(settings, scales=tuple(scale * factor for scale in settings.scales))

    def begin(
        self,
        images: Sequence[Pixels],
        choosers: Sequence[Choose],
        settings: InferenceSettings,
        *,
        crf: bool = False,
        keep_planes: bool | None = None,
    ) -> Callable[[], Found]:
        """Segment images of one shape under the protocols that each image's chooser names, looking at each once.

        A GPU is not waited for: what is returned does that, and gives for each image the classes' scores, and a
        result for each protocol.

        Args:
            images: RGB, [H, W, 3] each.
            choosers: for each image, which classes each protocol keeps, given the scores.
            settings: scales, flips and how they are merged.
            crf: refine by a dense CRF.
            keep_planes: keep the merged masks; by default where an image is not cut into tiles.
        """
        height, width = images[0].shape[:2]
        settings = self.fit_scales(settings, height * width)
        most = round(self.max_pixels / max(settings.scales) ** 2)
        grid = plan_tiles(height, width, most if self._in_tiles else height * width)
        together = max(1, self.max_pixels // (height * width))

        def look_at(tiles: Tensor) -> Look:
            return look(self.prepared, tiles, settings, max_pixels=self.max_pixels, half=self.half)

        keep = len(grid) == 1 if keep_planes is None else keep_planes

        @torch.inference_mode()
        def begin(first: int) -> Callable[[], Found]:
            some = slice(first, first + together)
            batch = torch.from_numpy(np.stack(images[some]))
            on_gpu = self.device.type == "cuda"
            if on_gpu:
                batch = batch.pin_memory()  # without it the copy would wait for the batch before
            shown = batch.to(self.device, non_blocking=on_gpu).permute(0, 3, 1, 2)
            return begin_segment(shown, look_at, grid, choosers[some], crf=crf, keep_planes=keep)

        if len(grid) == 1 and len(images) <= together:
            return begin(0)
        # Large images: two at once could take more memory than there is.
        return lambda: [one for first in range(0, len(images), together) for one in begin(first)()]


def _has_bfloat16(device: torch.device) -> bool:
    """Whether a device multiplies bfloat16 by itself, instead of by way of float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
