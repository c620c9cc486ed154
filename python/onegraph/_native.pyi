from os import PathLike
from typing import Any, Callable, overload

import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8] | str | PathLike[str]

class Error(Exception):
    """A command or call failed; the text says why."""

class Detections:
    """Objects found on an image, best first; N of them."""

    @property
    def boxes(self) -> NDArray[np.float32]:
        """(N, 4): x1, y1, x2, y2 in pixels of the image."""
    @property
    def scores(self) -> NDArray[np.float32]:
        """(N,): 0 to 1."""
    @property
    def labels(self) -> NDArray[np.int64]:
        """(N,): classes of the model, from 1: Predictor.classes[label - 1] is the name."""
    @property
    def category_ids(self) -> NDArray[np.int64]:
        """(N,): COCO ids of the categories."""
    @property
    def names(self) -> list[str]:
        """Names of the categories."""
    @property
    def masks(self) -> NDArray[np.bool_] | None:
        """(N, height, width), decoded at each call; None of a model without masks."""
    @property
    def keypoints(self) -> NDArray[np.float32] | None:
        """(N, K, 3): x, y in pixels of the image, and a score; None of a model without keypoints."""
    @property
    def rles(self) -> list[dict[str, Any]] | None:
        """Masks as COCO's compressed RLE, for pycocotools.mask.decode."""
    def __len__(self) -> int: ...

class Predictor:
    """A trained model.

    path: a run, a checkpoint, or a file of weights, whose config is `config` (a file or preset) or
        the config.toml beside it.
    checkpoint: of a run: "best" (the one with the best score, if an evaluation has named one, else
        the last) or "last"; a line on standard error says which was taken.
    device: "cpu", "cuda" or "auto".
    set: values of keys: Predictor(run, **{"model.detections.per_image": 20}).
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
        """Names of the classes, from class 1."""
    @overload
    def predict(self, image: Image) -> Detections:
        """Detects on an image: a path (upright as its EXIF orientation says), or an array of
        uint8, (height, width, 3), RGB. Other threads of Python run meanwhile."""
    @overload
    def predict(self, image: list[Image]) -> list[Detections]:
        """Detects on each image; on a GPU images of like shapes run together."""

class Store:
    """A store that `onegraph prep` wrote: a sequence of images.

    Each is a dict: id, file_name, image (height, width, 3; uint8 RGB), boxes (N, 4; x1, y1, x2,
    y2), labels (N,; from 1), crowd (N,; bool), masks (N, height, width; bool, empty for an
    object that has only a box) and keypoints (N, K, 3; x, y, visibility; K is 0 without any).
    """

    def __new__(cls, path: str | PathLike[str]) -> Store: ...
    @property
    def classes(self) -> list[str]:
        """Names of the classes, from class 1."""
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> dict[str, Any]: ...

def train(
    arguments: list[str], set: dict[str, Any], tick: Callable[[PathLike[str]], None]
) -> PathLike[str]: ...
