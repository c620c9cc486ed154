from os import PathLike
from typing import Any, Callable, overload

import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8] | str | PathLike[str]

class Error(Exception):
    """A command or call failed; see its message."""

class Detections:
    """The N objects detected on an image, by decreasing score."""

    @property
    def boxes(self) -> NDArray[np.float32]:
        """(N, 4): x1, y1, x2, y2 in image pixels."""
    @property
    def scores(self) -> NDArray[np.float32]:
        """(N,): 0 to 1."""
    @property
    def labels(self) -> NDArray[np.int64]:
        """(N,): classes of the model, starting at 1: Predictor.classes[label - 1] is the name."""
    @property
    def category_ids(self) -> NDArray[np.int64]:
        """(N,): COCO ids of the categories."""
    @property
    def names(self) -> list[str]:
        """Names of the categories."""
    @property
    def masks(self) -> NDArray[np.bool_] | None:
        """(N, height, width), decoded at each access; None if the model has no masks."""
    @property
    def keypoints(self) -> NDArray[np.float32] | None:
        """(N, K, 3): x, y in image pixels, and a score; None if the model has no keypoints."""
    @property
    def rles(self) -> list[dict[str, Any]] | None:
        """Masks as COCO's compressed RLE, for pycocotools.mask.decode."""
    def __len__(self) -> int: ...

class Predictor:
    """A trained model.

    path: a run, a checkpoint, or a weights file.
    config: config file or preset for a weights file; default: config.toml in its folder.
    checkpoint: the checkpoint to use if path is a run: "best" (the one with the best score, or the
        last one if no evaluation has selected any) or "last". The choice is printed to stderr.
    device: "cpu", "cuda" or "auto".
    set: config values, as in Predictor(run, **{"model.detections.per_image": 20}).
    """

    def __new__(
        cls,
        path: str | PathLike[str],
        device: str = "auto",
        config: str | PathLike[str] | None = None,
        checkpoint: str = "best",
        **set: Any,
    ) -> Predictor: ...
    @property
    def classes(self) -> list[str]:
        """Names of the classes, starting with class 1."""
    @overload
    def predict(self, image: Image) -> Detections:
        """Detects on an image: a path, or an RGB array of uint8, (height, width, 3). The EXIF
        orientation of files is applied, unless training ignored it. Releases the GIL."""
    @overload
    def predict(self, image: list[Image]) -> list[Detections]:
        """Detects on each image; on a GPU, images of similar shapes are batched."""

class Store:
    """A store written by `onegraph prep`: a sequence of images.

    Each image is a dict: id, file_name, image (height, width, 3; uint8 RGB), boxes (N, 4; x1, y1,
    x2, y2), labels (N,; from 1), crowd (N,; bool), masks (N, height, width; bool, empty for an
    object that has only a box) and keypoints (N, K, 3; x, y, visibility; K is 0 if the store has no
    keypoints).
    """

    def __new__(cls, path: str | PathLike[str]) -> Store: ...
    @property
    def classes(self) -> list[str]:
        """Names of the classes, starting with class 1."""
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> dict[str, Any]: ...

def train(
    arguments: list[str], set: dict[str, Any], tick: Callable[[PathLike[str]], None]
) -> PathLike[str]: ...
