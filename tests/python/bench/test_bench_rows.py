"""How the bench's rows come out of its records, and how they are told."""

import json

import pytest

from ckptd_bench import (compare, compare_options, pairs, report, series_resharding,
                         series_restoring, series_saving, series_training)
from ckptd_bench.pairs import OURS, Pair
from ckptd_bench.rows import ROWS, Result

MIB = 1 << 20


def training_record(blocked, extra):
    return {"blocked_seconds": blocked, "extra_seconds": extra, "step_seconds": 1.0}


def save_record(blocked, durable, **more):
    return {"blocked_seconds": blocked, "durable_seconds": durable, "processor_seconds": 1.0,
            "written_bytes": 100, **more}


def by_name(results):
    return {result.row.name: result for result in results}


def training_results():
    ours = training_record(0.01, 1.0)
    theirs = {"dcp.save": training_record(10.0, 0.001),
              "dcp.async_save thread": training_record(0.5, 2.0),
              "dcp.async_save process": training_record(0.4, 4.0),
              "dcp.async_save staged in background": training_record(0.02, 5.0)}
    return by_name(series_training.results(
        {name: [Pair(ours, record, True)] * 3 for name, record in theirs.items()}))


def saving_results():
    ours = save_record(0.4, 4.0, persist_seconds=3.0, rate=900.0)
    theirs = {"fio write": {"rate": 1000.0}}
    theirs |= {name: save_record(0.5, 8.0) for name in series_saving.COMPETITORS[1:]}
    return by_name(series_saving.results(
        {name: [Pair(ours, record, False)] * 3 for name, record in theirs.items()}, 100))


def restoring_results():
    ours = {"rate": 500.0, "seconds": 2.0, "read_bytes": 100, "processor_seconds": 1.0,
            "reconnect_seconds": 0.1}
    theirs = {**ours, "rate": 1000.0, "seconds": 6.0}
    cold = {name: [Pair(ours, theirs, True)] * 3 for name in series_restoring.COLD_COMPETITORS}
    return by_name(series_restoring.results({"memcpy": [Pair(ours, theirs, True)] * 3}, cold, 100))


def resharding_results():
    return by_name(series_resharding.results(
        {"4 to 2": [1.0, 1.0, 1.5], "4 to 3": [1.2, 1.2, 1.2]}, [1.04, 1.05, 1.06], 1))


def test_async_saving_is_compared_with_the_better_of_thread_and_process():
    rows = training_results()
    assert rows["blocked_vs_dcp_save"].value == pytest.approx(0.001)
    assert rows["blocked_vs_dcp_async"].value == pytest.approx(0.01 / 0.4)
    assert rows["blocked_vs_dcp_async"].detail["theirs_is"] == "dcp.async_save process"
    assert rows["step_slowdown_vs_dcp_async"].value == pytest.approx(0.5)
    assert rows["step_slowdown_vs_dcp_async"].detail["theirs_is"] == "dcp.async_save thread"


def test_staging_in_the_background_is_told_beside_the_value():
    told = training_results()["blocked_vs_dcp_async"].detail["value_against_each"]
    assert told["dcp.async_save staged in background"] == pytest.approx(0.5)


def test_saves_standing_still_give_three_rows():
    rows = saving_results()
    assert rows["blocked_back_to_back_vs_dcp_async"].value == pytest.approx(0.8)
    assert rows["durable_speedup_vs_dcp_save"].value == pytest.approx(2.0)
    assert rows["persist_vs_fio_write"].value == pytest.approx(0.9)
    assert set(rows["durable_speedup_vs_dcp_save"].detail["speedup_over_each"]) == set(
        series_saving.COMPETITORS[1:])


def test_persisting_took_no_less_than_from_the_fence_until_durable():
    assert series_saving.persist_seconds(save_record(1.0, 5.0, persist_seconds=2.0)) == 4.0
    assert series_saving.persist_seconds(save_record(1.0, 5.0, persist_seconds=4.8)) == 4.8


def test_restores_give_three_rows():
    rows = restoring_results()
    assert rows["memory_restore_vs_memcpy"].value == pytest.approx(0.5)
    assert rows["memory_restore_vs_memcpy"].detail["read_from_storage_to_state"] == 1.0
    assert rows["restore_speedup_vs_dcp_load"].value == pytest.approx(3.0)
    assert rows["restore_vs_fio_read"].value == pytest.approx(0.5)


def test_of_several_layouts_the_worst_median_counts():
    rows = resharding_results()
    assert rows["reshard_read_amplification"].value == 1.2
    assert rows["reshard_read_amplification"].detail["worst"] == "4 to 3"
    assert rows["subset_read_amplification"].value == 1.05


def test_the_daemons_memory_is_the_most_that_was_seen():
    result = report.memory_result(ROWS[compare.MEMORY_ROW], [10 * MIB, 30 * MIB, 20 * MIB], Result)
    assert result.value == 30


def all_results():
    memory = report.memory_result(ROWS[compare.MEMORY_ROW], [MIB], Result)
    return [*training_results().values(), *saving_results().values(),
            *restoring_results().values(), *resharding_results().values(), memory]


def test_the_series_together_give_every_row_once():
    assert sorted(result.row.name for result in all_results()) == sorted(ROWS)
    promised = [name for series in compare.SERIES for name in series.ROW_NAMES]
    assert sorted([*promised, compare.MEMORY_ROW]) == sorted(ROWS)


def test_only_the_series_that_measure_a_wanted_row_run():
    assert compare.series_for(["subset_read_amplification"]) == [series_resharding]
    assert compare.series_for(list(ROWS)) == list(compare.SERIES)
    assert compare.series_for([compare.MEMORY_ROW]) == [series_saving]


def test_a_row_is_reached_on_the_better_side_of_its_number():
    lower, higher = ROWS["blocked_vs_dcp_save"], ROWS["persist_vs_fio_write"]
    assert lower.is_reached(0.01) and not lower.is_reached(0.011)
    assert higher.is_reached(0.9) and not higher.is_reached(0.89)


def test_every_row_fits_into_the_table():
    lines = report.table(all_results())
    assert len(lines) == 1 + len(ROWS)
    durable = next(line for line in lines if line.startswith("durable_speedup"))
    assert "2 " in durable and "2 .. 2" in durable and ">= 1.5" in durable
    assert report.seconds_table(all_results())


def test_the_json_is_a_list_of_rows_with_exactly_these_keys(tmp_path):
    path = tmp_path / "result.json"
    report.write_json(path, all_results(), {"machine": {"cores": 2}, "state_gib": 4.0})
    rows = json.loads(path.read_text())
    assert len(rows) == len(ROWS)
    for row in rows:
        assert set(row) == {"name", "value", "better", "reach", "samples", "detail"}
        assert row["better"] in ("lower", "higher")
        assert isinstance(row["value"], (int, float)) and isinstance(row["reach"], (int, float))
        assert row["detail"]["machine"] == {"cores": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.parametrize("arguments", [["--samples", "0"], ["--state-gib", "0"], ["--only", "x"]])
def test_wrong_arguments_are_refused(arguments, capsys):
    with pytest.raises(SystemExit) as exit:
        compare_options.parser().parse_args(arguments)
    assert exit.value.code == 2
    assert arguments[0] in capsys.readouterr().err
