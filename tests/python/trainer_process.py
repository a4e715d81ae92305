"""Trainers as real processes: forked from one that has imported torch once, driven over a pipe.

    trainer = Trainer(rank=1, world_size=4)
    trainer.connect(socket_dir, run="run-1")
    trainer.save("job", 7).durable()
    trainer.kill()

Each call has a form that doesn't wait: start(name, ...), then answer(). What a call raises
in the trainer, answer() raises here, as the same class of ckptd.
"""

import multiprocessing
import multiprocessing.forkserver
import os
import pathlib
import uuid

import ckptd

from waiting import HANG_SECONDS

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["trainer_preload"])


def _start_server():
    """The process that trainers are forked from; it finds modules by PYTHONPATH alone."""
    before = os.environ.get("PYTHONPATH")
    here = str(pathlib.Path(__file__).resolve().parent)
    os.environ["PYTHONPATH"] = here if before is None else f"{here}:{before}"
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


class Trainer:
    """One rank. Killed at the latest when the fixture ends."""

    def __init__(self, rank=0, world_size=1, user_id=None):
        self.rank = rank
        self.world_size = world_size
        _start_server()
        self._calls, calls = _CONTEXT.Pipe()
        self._gate, gate = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=_serve, daemon=True,
                                         args=(rank, world_size, user_id, calls, gate))
        self._process.start()
        calls.close()
        gate.close()

    def start(self, name, *arguments, **options):
        """Begins a call; its answer must be taken before the next."""
        self._calls.send((name, arguments, options))
        return self

    def answer(self, seconds=HANG_SECONDS):
        assert self._calls.poll(seconds), f"rank {self.rank} has not answered after {seconds} s"
        kind, value, text = self._calls.recv()
        if kind == "raised":
            raise getattr(ckptd, value, AssertionError)(text)
        return value

    def __getattr__(self, name):
        """Every public method of trainer_state.Rank, as a call that waits."""
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments, **options: self.start(name, *arguments, **options).answer()

    # After close_gate():

    def reached_gate(self):
        """Returns when the copy thread stands at the gate."""
        assert self._gate.poll(HANG_SECONDS), f"rank {self.rank} never came to the gate"
        return self._gate.recv()

    def open_gate(self):
        """Until it is closed again."""
        self._gate.send("open")

    def kill(self):
        """SIGKILL; returns when the process is gone."""
        self._process.kill()
        self._process.join()


class Trainers(list):
    """The ranks of one run, in order."""

    def each(self, name, *arguments, **options):
        """The call in all ranks at once; their answers. Raises the first error."""
        self.start(name, *arguments, **options)
        return self.answers()

    def start(self, name, *arguments, **options):
        for trainer in self:
            trainer.start(name, *arguments, **options)

    def answers(self):
        """Takes every answer, then raises the first error."""
        answers, errors = [], []
        for trainer in self:
            try:
                answers.append(trainer.answer())
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return answers

    def errors(self, name, *arguments, **options):
        """The call in all ranks at once, each of which must raise ckptd's errors."""
        self.start(name, *arguments, **options)
        return self.raised()

    def raised(self):
        errors = []
        for trainer in self:
            try:
                value = trainer.answer()
            except ckptd.Error as error:
                errors.append(error)
            else:
                raise AssertionError(f"rank {trainer.rank} raised nothing and returned {value!r}")
        return errors

    def kill(self):
        for trainer in self:
            trainer.kill()


def new_name(kind):
    """A job's name or a run's token that no other test has."""
    return f"{kind}-{uuid.uuid4().hex[:12]}"


def _serve(rank, world_size, user_id, calls, gate):
    """The trainer's process."""
    if user_id is not None:
        os.setgroups([])
        os.setgid(user_id)
        os.setuid(user_id)
    import trainer_state
    serving = trainer_state.Rank(rank, world_size, gate)
    while True:
        try:
            name, arguments, options = calls.recv()
        except EOFError:
            return  # the test is over
        try:
            answer = ("done", getattr(serving, name)(*arguments, **options), "")
        except ckptd.Error as error:
            answer = ("raised", type(error).__name__, str(error))
        except Exception as error:
            answer = ("raised", "AssertionError", f"rank {rank}: {error!r}")
        calls.send(answer)
