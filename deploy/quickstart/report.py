"""What the rehearsal measured, as a short table."""


def say(line):
    print(line, flush=True)


class Report:
    def __init__(self):
        self.equal = 0
        self.different = 0
        self._saves = []     # rows of the table
        self._restores = []

    def add_saves(self, trainers):
        """The saves that these trainers saw become durable, or at least snapshot."""
        durable_steps = sorted({event["step"] for event in trainers.events("durable")})
        for step in durable_steps:
            events = trainers.events("durable", step=step)
            self._saves.append((
                f"step {step}", f"{trainers.world_size} ranks",
                f"{1000 * max(event['stall_seconds'] for event in events):.0f} ms",
                f"{max(event['durable_seconds'] for event in events):.2f} s",
                f"{max(event['bytes'] for event in events) / 1e6:.1f} MB"))

    def add_orphan(self, step, seconds):
        self._saves.append((f"step {step}", "trainers dead", "-",
                            f"{seconds:.2f} s after the pause", "-"))

    def add_restore(self, trainers, events, source):
        different = [name for event in events for name in event["different"]]
        for name in different[:10]:
            say(f"  DIFFERS: {name}")
        self.equal += sum(event["equal"] for event in events)
        self.different += len(different)
        self._restores.append((
            f"step {events[0]['step']}", f"{trainers.world_size} ranks", source,
            f"{max(event['seconds'] for event in events):.2f} s",
            f"{sum(event['bytes'] for event in events) / 1e6:.1f} MB"))
        if not different:
            say(f"  restored step {events[0]['step']}: {sum(e['equal'] for e in events)} tensors, "
                "bit for bit")

    def print_table(self):
        self._print(("save", "by", "stall", "durable after", "written"), self._saves)
        self._print(("restore", "by", "from", "time", "delivered"), self._restores)

    @staticmethod
    def _print(header, rows):
        print()
        widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
        for row in [header, *rows]:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
