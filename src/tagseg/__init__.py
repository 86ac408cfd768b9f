"""Image tags in, segmentation masks out.

import tagseg

model = tagseg.train("photos.csv", out="runs/photos")
model.predict("dog.jpg").save("dog.png")
"""

import logging

import lazy_loader

# torch and timm take seconds to import, which `tagseg --help` need not wait for. The names are in __init__.pyi.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent unless the application configures logging
