"""Trains a small GPT and checkpoints it with ckptd: a PyTorch loop as anyone would
write it. What ckptd adds is marked with "ckptd:".

Run one process per rank, with torchrun's environment (RANK, WORLD_SIZE and so on). The
rehearsal that kills and compares looks on through `watcher` (rehearsal.py); a trainer of
your own has none.
"""

import argparse

import ckptd
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn import functional as F

import model as gpt
import rehearsal
import text

JOB = "gpt"
GLOBAL_BATCH = 12


def training_state(model, optimizer):
    """All that a resumed run needs, keyed by FQN and so the same under any layout."""
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state}


def apply_training_state(model, optimizer, state):
    # The tensors were loaded in place; this also sets learning rates and the like.
    set_state_dict(model, optimizer, model_state_dict=state["model"],
                   optim_state_dict=state["optimizer"])


def train_step(model, optimizer, tokens, targets):
    """One step; the loss averaged over the global batch."""
    loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()


def train(options, watcher):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    # Under tensor parallelism all processes work on the same batch.
    part, parts = (rank, world_size) if options.layout == "fsdp" else (0, 1)
    config = gpt.GptConfig(layers=options.layers)
    batches = text.Batches(options.text, GLOBAL_BATCH, config.context)
    model = gpt.build(config, options.layout, world_size, options.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    # ckptd: connect to this machine's daemon; optimizer.step() waits for the snapshot.
    client = ckptd.Client(options.socket_dir, snapshot_gate=watcher.snapshot_gate)
    client.fence(optimizer)

    first_step = 1
    if options.resume:
        state = training_state(model, optimizer)
        restored = client.load(JOB, "latest", state)  # ckptd: from whatever layout it has
        apply_training_state(model, optimizer, state)
        first_step = restored.step + 1
        watcher.restored(restored, training_state(model, optimizer))
    if options.forget_optimizer:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    for step in range(first_step, options.last_step + 1):
        loss = train_step(model, optimizer, *batches.of_step(step, part, parts))
        watcher.trained(step, loss)
        if options.save_every and step % options.save_every == 0:
            state = training_state(model, optimizer)
            watcher.before_save(step, state)
            handle = client.save(JOB, step, state)  # ckptd: returns at once
            watcher.saved(step, handle)
    watcher.finished()
    client.close()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layout", choices=["fsdp", "tensor"], required=True)
    parser.add_argument("--socket-dir", required=True, help="where the daemon listens")
    parser.add_argument("--text", required=True, help="the file to train on")
    parser.add_argument("--last-step", type=int, required=True)
    parser.add_argument("--save-every", type=int, default=0, help="0: never")
    parser.add_argument("--resume", action="store_true", help="from the latest checkpoint")
    parser.add_argument("--forget-optimizer", action="store_true",
                        help="leave Adam's state out of the resume, to see what is lost")
    parser.add_argument("--layers", type=int, default=gpt.GptConfig.layers)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rendezvous", default="env://", help="torch.distributed's init_method")
    rehearsal.add_arguments(parser)
    return parser.parse_args()


def main():
    options = parse_arguments()
    torch.set_num_threads(1)
    rank, world_size = rehearsal.rank_and_world_size()
    dist.init_process_group("gloo", init_method=options.rendezvous, rank=rank,
                            world_size=world_size)
    train(options, rehearsal.Watcher(options, rank))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
