"""Writes the files of engine/src/weights/container/fixtures: small state dicts saved by PyTorch and NumPy.

    python3 tests/interchange/make_fixtures.py engine/src/weights/container/fixtures

The tests expect element i of a tensor to be (i - 3) / 4. The stored files were made with torch 2.15.0 and numpy 2.
"""

import argparse
import pickle
import sys
from collections import OrderedDict
from pathlib import Path

import numpy
import torch


def values(count, dtype=torch.float32):
    return ((torch.arange(count) - 3) / 4).to(dtype)


def state_dict():
    """A state dict with a tensor of each kind that occurs in practice."""
    shared = values(12)
    state = OrderedDict(
        plain=values(6).reshape(2, 3),
        turned=values(6).reshape(2, 3).t(),
        part=shared[4:10].reshape(3, 2),
        every_second=shared[::2],
        half=values(4, torch.float16),
        brain=values(4, torch.bfloat16),
        double=values(4, torch.float64),
        parameter=torch.nn.Parameter(values(3)),
        scalar=values(1).reshape(()),
        empty=torch.zeros(0, 5),
    )
    state["bn.num_batches_tracked"] = torch.tensor(7)
    state._metadata = OrderedDict({"": {"version": 1}, "bn": {"version": 2}})
    return state


def main():
    folder = Path(sys.argv[1])
    state = state_dict()
    torch.save(state, folder / "zip.pth")
    torch.save(state, folder / "legacy.pth", _use_new_zipfile_serialization=False)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5])
    checkpoint = {
        "model": OrderedDict(("module." + name, value) for name, value in state.items()),
        "optimizer": optimizer.state_dict(),
        "lr_scheduler": schedule.state_dict(),
        "args": argparse.Namespace(lr=0.02, device="cuda", data=None, rank=[0, 1]),
        "epoch": 3,
    }
    torch.save(checkpoint, folder / "checkpoint.pth")
    arrays = {
        "plain": values(6).reshape(2, 3).numpy(),
        "turned": numpy.asfortranarray(values(6).reshape(2, 3).numpy()),
        "half": values(4, torch.float16).numpy(),
        "double": values(4, torch.float64).numpy(),
        "plain_momentum": values(6).numpy(),
    }
    for protocol in [0, 2, 4, 5]:
        with open(folder / f"numpy_{protocol}.pkl", "wb") as file:
            pickle.dump({"model": arrays, "__author__": "test"}, file, protocol)
    archives(folder)


def archives(folder):
    """NumPy archives with a counter, which the reader skips."""
    six, four = (((numpy.arange(n) - 3) / 4).astype(numpy.float32) for n in [6, 4])
    arrays = {
        "group0/plain": six.reshape(2, 3),
        "turned": numpy.asfortranarray(six.reshape(2, 3)),
        "half": four.astype(numpy.float16),
        "double": four.astype(numpy.float64),
        "scalar": six[0],
        "global_step": numpy.int64(7),
    }
    numpy.savez(folder / "stored.npz", **arrays)
    numpy.savez_compressed(folder / "deflated.npz", **arrays)


if __name__ == "__main__":
    main()
