"""One rank of the matrix test. Reads a JSON command a line, answers a JSON line; ranks
that a layout doesn't have answer at once.

    {"do": "save", "layout": NAME, "step": N, "run": TOKEN}
    {"do": "load", "layout": NAME, "step": N, "run": TOKEN}
"""

import json
import sys

import ckptd
import torch
import torch.distributed as dist

from matrix_layouts import LAYOUTS, World, differences

JOB = "matrix"


class Worker:
    def __init__(self, rank, socket_dir):
        self._rank = rank
        self._socket_dir = socket_dir
        # Meshes make process groups, which all ranks must do in one order.
        self._worlds = {name: World(layout) for name, layout in LAYOUTS.items()}

    def answer(self, command):
        layout = LAYOUTS[command["layout"]]
        if self._rank >= layout.world_size:
            return {"idle": True}
        world = self._worlds[command["layout"]]
        with ckptd.Client(self._socket_dir, rank=self._rank, world_size=layout.world_size,
                          run_token=command["run"]) as client:
            return getattr(self, "_" + command["do"])(client, world, command["step"])

    @staticmethod
    def _save(client, world, step):
        client.save(JOB, step, world.state(seed=step)).wait_durable()
        return {"saved": step}

    @staticmethod
    def _load(client, world, step):
        # The content of another step: whatever load leaves alone, differs.
        state = world.state(seed=step + 1000)
        expected = world.state(seed=step)
        before = differences(state, expected)
        client.load(JOB, step, state)
        return {"differed_before": len(before), "differ": differences(state, expected)}


def main():
    rank, world_size, rendezvous, socket_dir = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=int(rank),
                            world_size=int(world_size))
    worker = Worker(int(rank), socket_dir)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        try:
            answer = worker.answer(json.loads(line))
        except Exception as error:  # the test's, to show
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
