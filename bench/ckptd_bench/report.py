"""Results for people and for programs."""

import json
import os
import pathlib

from . import pairs

MIB = 1 << 20


def table(results):
    """Lines of text."""
    lines = [("figure", "value", "to reach", "", "samples between", "what")]
    for result in results:
        row = result.row
        sign = "<=" if row.better == "lower" else ">="
        lines.append((row.name, number(result.value), f"{sign} {row.reach:g}",
                      "reached" if row.is_reached(result.value) else "NOT reached",
                      _between(result), row.what))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines]


def number(value):
    """Three digits that count."""
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def _between(result):
    """The range of the samples, turned as the value is."""
    detail = result.detail
    if "ratio_ours_to_theirs" in detail:
        ends = [detail["ratio_ours_to_theirs"][end] for end in ("lowest", "highest")]
        if result.row.name.endswith(("_vs_dcp_load", "speedup_vs_dcp_save")):
            ends = [1 / end for end in reversed(ends)]
    elif "spread" in detail:
        ends = [detail["spread"][end] for end in ("lowest", "highest")]
    else:
        every = detail["each"].values()
        ends = [min(spread["lowest"] for spread in every), max(spread["highest"] for spread in every)]
    return f"{number(ends[0])} .. {number(ends[1])}"


def seconds_table(results):
    """Lines with what the ratios were made of: medians of ours and theirs."""
    lines = []
    for result in results:
        detail = result.detail
        if "ours" in detail:
            theirs = detail.get("theirs_is", "theirs")
            lines.append(f"  {result.row.name}: ours {_amount(detail['ours'], detail['unit'])}, "
                         f"{theirs} {_amount(detail['theirs'], detail['unit'])}")
        for key in ("value_against_each", "speedup_over_each", "processor_seconds"):
            if isinstance(detail.get(key), dict):
                each = ", ".join(f"{name} {number(value)}" for name, value in detail[key].items())
                lines.append(f"    {key.replace('_', ' ')}: {each}")
    return lines


def _amount(spread, unit):
    median = spread["median"]
    return f"{median / 1e9:.2f} GB/s" if unit == "bytes per second" else f"{number(median)} {unit}"


def memory_result(row, samples_bytes, result_class):
    """The row of the daemon's memory: the most that was ever seen."""
    mebibytes = [sample / MIB for sample in samples_bytes]
    return result_class(row, max(mebibytes), len(mebibytes),
                        {"unit": "MiB", "value_is": "the highest of all samples",
                         "spread": pairs.spread(mebibytes)})


def write_json(path, results, common):
    """All rows, each with what is `common` to them in its detail; whole or not at all."""
    rows = [result.to_json() for result in results]
    for row in rows:
        row["detail"] = {**common, **row["detail"]}
    path = pathlib.Path(path)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    os.replace(temporary, path)
