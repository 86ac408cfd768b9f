"""What `import tagseg` offers, and where it comes from; nothing is imported before it is used."""

from ._version import __version__ as __version__
from .api import (
    check as check,
    evaluate as evaluate,
    export_masks as export_masks,
    export_model as export_model,
    predict_files as predict_files,
    recipes as recipes,
    train as train,
    train_masks as train_masks,
    write_pseudo_labels as write_pseudo_labels,
    write_report as write_report,
)
from .app.launch import serve_app as serve_app
from .benchmarks.suite import bench as bench
from .data import (
    DataSource as DataSource,
    ImageDataset as ImageDataset,
    MaskDataset as MaskDataset,
)
from .errors import (
    ConfigError as ConfigError,
    DataError as DataError,
    Interrupted as Interrupted,
    TagsegError as TagsegError,
    WeightsError as WeightsError,
)
from .evaluation import (
    ConfusionMatrix as ConfusionMatrix,
    Evaluation as Evaluation,
)
from .export.masks import MaskExport as MaskExport
from .export.pseudo_labels import Coverage as Coverage
from .models import (
    CAM as CAM,
    ModelConfig as ModelConfig,
    Segmentation as Segmentation,
    Segmenter as Segmenter,
    build_cam as build_cam,
    build_model as build_model,
    focal_penalty as focal_penalty,
    load_model as load_model,
    load_reference_checkpoint as load_reference_checkpoint,
    ngwp as ngwp,
    save_model as save_model,
)
from .predict import (
    Prediction as Prediction,
    Predictor as Predictor,
    load as load,
)
from .predict.tta import merge_scales as merge_scales
from .refine.crf import dense_crf as dense_crf
from .refine.pamr import pamr as pamr
from .reproduction.runner import reproduce as reproduce
from .training.losses import (
    classification_loss as classification_loss,
    self_supervised_loss as self_supervised_loss,
)
from .training.pseudo_labels import (
    UNLABELED as UNLABELED,
    pseudo_labels as pseudo_labels,
)
from .training.recipe import Recipe as Recipe
