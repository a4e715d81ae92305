"""What can be said to bench/leak. Without PyTorch, so that it is checked before anything is built;
run as a program, it only checks."""

import argparse
import pathlib

WARM_UP_SAVES = 100


def number_of_saves(text):
    saves = int(text)
    if saves < 3 * WARM_UP_SAVES or saves % WARM_UP_SAVES:
        raise argparse.ArgumentTypeError(
            f"{saves} is not a multiple of {WARM_UP_SAVES} of at least {3 * WARM_UP_SAVES}")
    return saves


def parser():
    made = argparse.ArgumentParser(
        prog="bench/leak", description="Saves many times in one process; fails if trainer or daemon "
        "grows in memory, descriptors, threads or mappings.")
    made.add_argument("--saves", type=number_of_saves, default=1000, metavar="N",
                      help="how many (default 1000)")
    made.add_argument("--folder", type=pathlib.Path, metavar="PATH",
                      help="where to write (default: in the build folder)")
    made.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"),
                      help=argparse.SUPPRESS)
    return made


if __name__ == "__main__":
    parser().parse_args()
