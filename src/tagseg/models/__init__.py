"""The networks, in plain torch.nn, with their weights and files. No training code."""

import lazy_loader

# A recipe names a network's options, and is read before torch is imported. The names are in __init__.pyi.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
