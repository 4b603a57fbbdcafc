"""The metrics of `kctl export --follow`: what a run added to its table, and its lag."""

from kctl.metrics.family import counter, gauge

ROWS = counter("kctl_follow_rows_total", "Rows that this run committed.", "topic")
LOG_BYTES = counter(
    "kctl_follow_log_bytes_total", "Bytes of log that this run read and committed.", "topic"
)
DEAD_LETTERS = counter(
    "kctl_follow_dead_letters_total", "Dead letters that this run committed.", "topic"
)
COMMITS = counter("kctl_follow_commits_total", "Commits of this run.")
LOST_RANGES = counter(
    "kctl_follow_lost_ranges_total",
    "Damaged or deleted ranges, and partitions that are left alone, that this run reported.",
)
EXPIRED_FILES = counter("kctl_follow_expired_files_total", "Files of old days and hours removed.")
PARTITIONS = gauge("kctl_follow_partitions", "Partitions that this run has seen.")
LAG = gauge(
    "kctl_follow_lag_records", "Offsets that the last look at the logs found and the table lacks."
)
LAG_SECONDS = gauge(
    "kctl_follow_lag_seconds",
    "Age of the newest look at the logs whose records are all in the table; before the table first"
    " catches up, seconds since the run began.",
)
SINCE_COMMIT = gauge("kctl_follow_last_commit_age_seconds", "Seconds since the last commit.")

FOLLOW = (
    ROWS, LOG_BYTES, DEAD_LETTERS, COMMITS, LOST_RANGES, EXPIRED_FILES, PARTITIONS, LAG,
    LAG_SECONDS, SINCE_COMMIT,
)  # fmt: skip
