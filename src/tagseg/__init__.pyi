"""What `import tagseg` offers, and where it comes from; nothing is imported before it is used."""

from ._version import __version__ as __version__
from .api import (
    check as check,
)
from .api import (
    evaluate as evaluate,
)
from .api import (
    predict as predict,
)
from .api import (
    recipes as recipes,
)
from .api import (
    report as report,
)
from .api import (
    train as train,
)
from .benchmarks.run import bench as bench
from .data import (
    DataError as DataError,
)
from .data import (
    ImageTags as ImageTags,
)
from .data import (
    PixelTruth as PixelTruth,
)
from .data import (
    open_dataset as open_dataset,
)
from .data import (
    open_truth as open_truth,
)
from .evaluation import (
    ConfusionMatrix as ConfusionMatrix,
)
from .evaluation import (
    Evaluation as Evaluation,
)
from .inference import (
    Prediction as Prediction,
)
from .inference import (
    Predictor as Predictor,
)
from .inference import (
    load as load,
)
from .inference.multiscale import merge_scales as merge_scales
from .models import (
    CAM as CAM,
)
from .models import (
    ModelConfig as ModelConfig,
)
from .models import (
    Segmentation as Segmentation,
)
from .models import (
    Segmenter as Segmenter,
)
from .models import (
    build_cam as build_cam,
)
from .models import (
    build_model as build_model,
)
from .models import (
    focal_penalty as focal_penalty,
)
from .models import (
    load_model as load_model,
)
from .models import (
    load_reference_checkpoint as load_reference_checkpoint,
)
from .models import (
    ngwp as ngwp,
)
from .models import (
    save_model as save_model,
)
from .refine.crf import dense_crf as dense_crf
from .refine.pamr import pamr as pamr
from .reproduction.run import reproduce as reproduce
from .source import Source as Source
from .training.losses import (
    classification_loss as classification_loss,
)
from .training.losses import (
    self_supervised_loss as self_supervised_loss,
)
from .training.pseudo import (
    IGNORE as IGNORE,
)
from .training.pseudo import (
    pseudo_labels as pseudo_labels,
)
from .training.recipe import Recipe as Recipe
from .walkthrough import demo as demo
