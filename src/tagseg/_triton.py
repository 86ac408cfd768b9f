"""Former place of `can_compile`, which `tagseg.training.loop` still imports from here."""

from tagseg._device import can_compile

__all__ = ["can_compile"]
