"""Count the bytes that torch operations hold at once: exact, and the same on every machine."""

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class PeakBytes(TorchDispatchMode):
    """Within `with PeakBytes() as memory`, `memory.peak` is the most that new tensors held at one time."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        for value in tree_iter((args, kwargs)):
            if isinstance(value, Tensor):
                self._know(value, new=False)
        result = func(*args, **(kwargs or {}))
        for value in tree_iter(result):
            if isinstance(value, Tensor):
                self._know(value, new=True)
        return result

    def _know(self, tensor: Tensor, *, new: bool) -> None:
        """Count memory that is new, and remember it until it is freed: its address may then be another's."""
        owner: Any = tensor.untyped_storage()
        key, size = owner._cdata, owner.nbytes()
        if key in self._seen:
            return
        size = size if new else 0
        self._seen.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(owner, self._free, key, size)

    def _free(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.now -= size
