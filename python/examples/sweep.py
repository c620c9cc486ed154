#!/usr/bin/env python3
"""A hyperparameter sweep with Optuna, which runs the command `onegraph train` for each trial.

    pip install optuna
    python3 python/examples/sweep.py --trials 20 finetune_r18 --set data.train_store=train.store ..

Each trial is a run in runs/sweep; `onegraph runs runs/sweep` lists them. The Optuna study is stored
in the same folder: running the command again adds trials to the study.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

FOLDER = Path("runs/sweep")
# Exit codes of `onegraph train`. Any other non-zero code ends the sweep, because the failure does
# not concern a single trial.
DIVERGED, INTERRUPTED = 5, 6
POLL_SECONDS = 1


def settings(trial):
    """The swept config keys, with the values of a trial."""
    return {
        "solver.learning_rate": trial.suggest_float("learning_rate", 1e-3, 1e-1, log=True),
        "solver.weight_decay": trial.suggest_float("weight_decay", 1e-5, 1e-3, log=True),
    }


def scores(run):
    """Step and AP of each evaluation so far: mask AP if the model has masks, else box AP."""
    try:
        lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    records = [json.loads(line) for line in lines if line.endswith("\n") and "eval_seconds" in line]
    kinds = [(record["step"], record.get("segm") or record.get("bbox")) for record in records]
    return [(step, of["AP"] or 0.0) for step, of in kinds if of]


def objective(trial, command, arguments):
    name = f"trial_{trial.number:04}"
    keys = {"train.run_dir": FOLDER, "train.name": name, **settings(trial)}
    options = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    process = subprocess.Popen([command, "train", *arguments, *options])
    seen = 0
    try:
        while process.poll() is None:
            time.sleep(POLL_SECONDS)
            for step, ap in scores(FOLDER / name)[seen:]:
                seen += 1
                trial.report(ap, step)
            if seen and trial.should_prune():
                process.send_signal(signal.SIGINT)
                process.wait()
                raise optuna.TrialPruned()
    except KeyboardInterrupt:
        process.wait()
        raise
    if process.returncode == DIVERGED:
        raise optuna.TrialPruned("the losses became non-finite")
    if process.returncode == INTERRUPTED:
        raise KeyboardInterrupt
    if process.returncode != 0:
        sys.exit(f"the sweep was stopped: onegraph train exited with code {process.returncode}")
    return max(ap for _, ap in scores(FOLDER / name))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--command", default="onegraph")
    options, arguments = parser.parse_known_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        study_name="sweep",
        storage=JournalStorage(JournalFileBackend(str(FOLDER / "study.log"))),
        load_if_exists=True,
        direction="maximize",
        pruner=optuna.pruners.MedianPruner(n_startup_trials=3),
    )
    study.optimize(lambda trial: objective(trial, options.command, arguments), options.trials)
    best = study.best_trial
    print(f"best: {FOLDER}/trial_{best.number:04}, AP {best.value:.3f}, with {best.params}")


if __name__ == "__main__":
    main()
