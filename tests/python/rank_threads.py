"""Ranks as clients of this process, called in a thread each."""

import threading
import uuid

import ckptd


def connect(daemon, rank=0, world_size=1, run_token=None, **options):
    """A client of a new run, unless a token is given."""
    return ckptd.Client(str(daemon.socket_dir), rank=rank, world_size=world_size,
                        run_token=run_token or uuid.uuid4().hex, **options)


def connect_ranks(daemon, world_size, **options):
    """The clients of all ranks of a new run."""
    token = uuid.uuid4().hex
    return [connect(daemon, rank, world_size, token, **options) for rank in range(world_size)]


def outcomes(*calls):
    """What each call returned or raised; they run at the same time, the last one in this thread."""
    results = [None] * len(calls)

    def run(index):
        try:
            results[index] = calls[index]()
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls) - 1)]
    for thread in threads:
        thread.start()
    run(len(calls) - 1)
    for thread in threads:
        thread.join()
    return results


def in_every_rank(clients, call):
    """call(client) in every rank at once; the results, or the exceptions."""
    return outcomes(*[lambda client=client: call(client) for client in clients])
