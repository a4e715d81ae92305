"""What is measured: the rows of the result, each with what it has to reach."""

import dataclasses

LOWER, HIGHER = "lower", "higher"


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    better: str    # LOWER or HIGHER
    reach: float
    what: str      # for people

    def is_reached(self, value):
        return value <= self.reach if self.better == LOWER else value >= self.reach


ROWS = {row.name: row for row in (
    Row("blocked_vs_dcp_save", LOWER, 0.01, "training blocked, ours / dcp.save"),
    Row("blocked_vs_dcp_async", LOWER, 0.1, "training blocked, ours / the better dcp.async_save"),
    Row("blocked_back_to_back_vs_dcp_async", LOWER, 1.0,
        "the same, fence right after save(): nothing to hide behind"),
    Row("step_slowdown_vs_dcp_async", LOWER, 1.0,
        "extra time of steps while a save is in flight, ours / the better dcp.async_save"),
    Row("durable_speedup_vs_dcp_save", HIGHER, 1.5, "time until durable, dcp.save + fsync / ours"),
    Row("persist_vs_fio_write", HIGHER, 0.9, "persist rate / fio's O_DIRECT write"),
    Row("restore_speedup_vs_dcp_load", HIGHER, 1.5, "cold restore, dcp.load / ours"),
    Row("restore_vs_fio_read", HIGHER, 0.85, "cold restore rate / fio's O_DIRECT read"),
    Row("memory_restore_vs_memcpy", HIGHER, 0.6, "restore rate after a crash / memcpy"),
    Row("reshard_read_amplification", LOWER, 1.02, "bytes read / distinct bytes wanted, resharding"),
    Row("subset_read_amplification", LOWER, 1.05, "the same, 1/8 of every matrix's rows"),
    Row("daemon_rss_beyond_arena_mib", LOWER, 256, "node daemon's resident MiB beside its slabs"),
)}


@dataclasses.dataclass(frozen=True)
class Result:
    """One measured row."""

    row: Row
    value: float
    samples: int
    detail: dict

    def to_json(self):
        return {"name": self.row.name, "value": self.value, "better": self.row.better,
                "reach": self.row.reach, "samples": self.samples, "detail": self.detail}
