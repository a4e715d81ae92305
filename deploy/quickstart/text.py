"""Real text that every Debian has, and batches of it that depend on the step alone."""

import pathlib
import sysconfig

import numpy
import torch

MAXIMUM_BYTES = 8_000_000


def gather(path):
    """Writes the machine's own text to `path`; answers what it found, for people."""
    licences = sorted(file for file in pathlib.Path("/usr/share/common-licenses").glob("*")
                      if file.is_file() and not file.is_symlink())
    sources = sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    text = bytearray()
    for file in [*licences, *sources]:
        text += file.read_bytes() + b"\n\n"
    del text[MAXIMUM_BYTES:]
    if len(text) < 500_000:
        raise RuntimeError(f"found only {len(text)} bytes of text in /usr/share/common-licenses "
                           "and in Python's library: too little to train on")
    pathlib.Path(path).write_bytes(text)
    return (f"{len(text) / 1e6:.1f} MB: {len(licences)} licences of /usr/share/common-licenses, "
            f"{len(sources)} sources of Python's library")


class Batches:
    """The global batch of a step, whoever trains on it, and this process's part of it."""

    def __init__(self, path, global_batch, context):
        self._text = numpy.memmap(path, dtype=numpy.uint8, mode="r")
        self._global_batch = global_batch
        self._context = context

    def of_step(self, step, part, parts):
        """(tokens, the tokens that follow each), part `part` of `parts` equal ones."""
        generator = torch.Generator().manual_seed(step)
        starts = torch.randint(len(self._text) - self._context - 1, (self._global_batch,),
                               generator=generator)
        size = self._global_batch // parts
        rows = [self._text[start:start + self._context + 1]
                for start in starts[part * size:(part + 1) * size].tolist()]
        rows = torch.from_numpy(numpy.stack(rows).astype(numpy.int64))
        return rows[:, :-1], rows[:, 1:]
