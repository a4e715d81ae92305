"""What can be said to bench/compare. Without PyTorch, so that it is checked before anything is
built; run as a program, it only checks."""

import argparse
import pathlib

from .rows import ROWS

SMALLEST_STATE_GIB, LARGEST_STATE_GIB = 0.05, 1024


def state_gib(text):
    size = float(text)
    if not SMALLEST_STATE_GIB <= size <= LARGEST_STATE_GIB:
        raise argparse.ArgumentTypeError(
            f"{text} is not between {SMALLEST_STATE_GIB} and {LARGEST_STATE_GIB}")
    return size


def number_of_samples(text):
    samples = int(text)
    if samples < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return samples


def parser():
    made = argparse.ArgumentParser(
        prog="bench/compare", description="Measures ckptd beside torch.save, safetensors, "
        "torch.distributed.checkpoint, fio and memcpy, in pairs of runs.")
    made.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the rows there too")
    made.add_argument("--only", nargs="+", choices=sorted(ROWS), metavar="NAME",
                      help="measure these rows only: " + ", ".join(ROWS))
    made.add_argument("--state-gib", type=state_gib, default=4.0, metavar="G",
                      help="size of the training state (default 4)")
    made.add_argument("--samples", type=number_of_samples, default=7, metavar="N",
                      help="pairs of runs per row (default 7)")
    made.add_argument("--folder", type=pathlib.Path, metavar="PATH",
                      help="where to write (default: in the build folder)")
    made.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"),
                      help=argparse.SUPPRESS)
    return made


if __name__ == "__main__":
    parser().parse_args()
