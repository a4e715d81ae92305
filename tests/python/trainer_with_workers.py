"""A trainer with four forked data loader workers that are in the middle of a batch when it
dies. Prints a JSON line with their process ids when its step is staged; then waits for its end.

    trainer_with_workers.py SOCKET_DIR JOB STEP
"""

import json
import signal
import sys

import ckptd
import torch
from torch.utils.data import DataLoader, Dataset

ELEMENTS = 1 << 19
WORKERS = 4


class SlowBatches(Dataset):
    """One item per worker, and no more."""

    def __len__(self):
        return 2 * WORKERS

    def __getitem__(self, index):
        while index >= WORKERS:
            signal.pause()  # a worker that waits for nothing sees that its parent is gone
        return index


def main():
    socket_dir, job, step = sys.argv[1], sys.argv[2], int(sys.argv[3])
    client = ckptd.Client(socket_dir, rank=0, world_size=1)
    client.save(job, step - 1, {"t": torch.zeros(ELEMENTS)}).wait_snapshot()
    batches = iter(DataLoader(SlowBatches(), batch_size=1, num_workers=WORKERS,
                              multiprocessing_context="fork"))
    assert sorted(int(next(batches)) for _ in range(WORKERS)) == list(range(WORKERS))
    client.save(job, step, {"t": torch.full((ELEMENTS,), float(step))}).wait_snapshot()
    print(json.dumps([worker.pid for worker in batches._workers]), flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
