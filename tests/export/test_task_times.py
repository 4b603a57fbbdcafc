"""The summary of the tasks that ran on Spark."""

from kctl.export.spark.task_times import TaskTime, summary


def times(*elapsed_ms):
    return [
        TaskTime(f"orders-{number} offsets 0 to 10", number * 1024 * 1024, each)
        for number, each in enumerate(elapsed_ms)
    ]


def test_tasks_that_take_the_same_time_are_one_line():
    assert summary(times(1000, 1200, 1900)) == ["3 tasks on Spark: median 1.2 s, longest 1.9 s"]


def test_the_slowest_are_listed_where_they_hold_up_the_others():
    lines = summary(times(100, 100, 900, 100, 300, 100, 200))
    assert lines == [
        (
            "7 tasks on Spark: median 0.1 s, longest 0.9 s; "
            "a smaller --file-size divides the slowest:"
        ),
        "  0.9 s  orders-2 offsets 0 to 10, 2.0 MiB",
        "  0.3 s  orders-4 offsets 0 to 10, 4.0 MiB",
        "  0.2 s  orders-6 offsets 0 to 10, 6.0 MiB",
    ]


def test_two_tasks_have_no_skew_and_none_have_no_summary():
    assert len(summary(times(100, 900))) == 1
    assert summary([]) == []
