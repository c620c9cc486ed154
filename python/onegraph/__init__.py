"""Trains Mask R-CNN and runs detection from Python. The wheel also installs the command
`onegraph`."""

import json
from pathlib import Path

from . import _native
from ._native import Detections, Error, Predictor, Store

__all__ = ["Detections", "Error", "Predictor", "Run", "Store", "train"]


class Run:
    """The directory of a training run, which may still be in progress."""

    def __init__(self, path):
        self.path = Path(path)
        if not (self.path / "config.toml").is_file():
            raise Error(f"{self.path} is not a run directory: it has no config.toml")

    @property
    def metrics(self):
        """Rows of metrics.jsonl as dicts: one per step, and one per evaluation."""
        return list(_Rows(self.path / "metrics.jsonl").new())

    @property
    def report(self):
        """report.json as a dict; None if it has not been written yet."""
        report = self.path / "report.json"
        return json.loads(report.read_text()) if report.is_file() else None

    @property
    def config(self):
        """The text of config.toml, which contains all keys."""
        return (self.path / "config.toml").read_text()

    def predictor(self, device="auto", checkpoint="best", **overrides):
        """A predictor with the model of a checkpoint of the run: "best" or "last"."""
        return Predictor(self.path, device=device, checkpoint=checkpoint, **overrides)

    def _repr_html_(self):
        report = (self.path / "report.html").resolve()
        return f'<a href="{report.as_uri()}">{report.name}</a> of {self.path}'

    def __repr__(self):
        return f"Run({str(self.path)!r})"


def train(
    config=None,
    *,
    resume=None,
    init=None,
    checkpoint="best",
    finetune=False,
    device="auto",
    progress=None,
    **overrides,
):
    """Trains like `onegraph train`, and returns the `Run`.

    config: a config file, or the name of a preset, such as "finetune_r18".
    resume: the directory of a run to resume, instead of a config.
    init: a weights file or a run with the initial weights.
    finetune: keeps the predictors' weights of each class whose name is also in the weights.
    checkpoint: the checkpoint to use if init is a run: "best" or "last".
    device: "cpu", "cuda" or "auto".
    progress: called with each new row of metrics.jsonl as a dict. If it raises an exception, the
        run saves a checkpoint and ends.
    overrides: config values, as in train("finetune_r18", **{"data.train_store": "train.store"}).

    On an interrupt (Ctrl-C, or a notebook's stop button) the run saves a checkpoint and
    KeyboardInterrupt is raised; `resume` continues the run.
    """
    if (config is None) == (resume is None):
        raise Error("train takes either a config or resume=RUN")
    if resume is not None and (init is not None or finetune):
        raise Error("resume=RUN uses the run's own weights: remove init and finetune")
    arguments = ["--device", device]
    arguments += ["--resume", str(resume)] if config is None else [str(config)]
    arguments += ["--init", str(init), "--checkpoint", checkpoint] if init is not None else []
    arguments += ["--finetune"] if finetune else []
    earlier = Path(resume) / "metrics.jsonl" if resume is not None else None
    known = set(earlier.read_bytes().splitlines(True)) if earlier and earlier.is_file() else set()
    rows = None

    def tick(run):
        nonlocal rows
        if progress is None:
            return
        rows = rows or _Rows(Path(run) / "metrics.jsonl", known)
        for row in rows.new():
            progress(row)

    return Run(_native.train(arguments, overrides, tick))


class _Rows:
    """Rows of a JSON Lines file that is still being written: `new` yields each complete line once,
    except the lines in `known`."""

    def __init__(self, path, known=()):
        self._path, self._known, self._at = path, known, 0

    def new(self):
        if not self._path.is_file():
            return
        with open(self._path, "rb") as file:
            file.seek(self._at)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._at += len(line)
                if line not in self._known:
                    yield json.loads(line)
