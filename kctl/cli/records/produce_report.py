"""ProduceReport: what became of the records of one `kctl produce`, and where to resume.

Every record carries the number of its line in the input. If the run stops early, the report counts
the records that were acknowledged and those whose outcome is unknown, and names the first line that
is not known to be written: `--from-line` continues there. Records are acknowledged per partition,
so some later lines may be written already; the report counts them, too.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kctl.cli.failures import DONE, FAILED, describe, exit_status_of
from kctl.cli.output import OutputFormat
from kctl.counts import counted
from kctl.errors import KctlError

if TYPE_CHECKING:
    from kctl.cli.records.record_input import InputLine, Parse
    from kctl.cli.session import Session
    from kctl.client.producer import NewRecord, ProducedRecord

# The number of failed records that are reported individually.
_ERRORS_REPORTED_MAX = 10


class ProduceReport:
    """Counts written and failed records, and prints them."""

    def __init__(
        self, session: "Session", topic: str, *, has_lines: bool, is_transactional: bool
    ) -> None:
        """Take `has_lines`: the input can be read again from a given line on."""
        self.written = 0
        self._is_transactional = is_transactional
        self._is_aborted = False
        self._session = session
        self._topic = topic
        self._has_lines = has_lines
        self._failed = 0
        self._is_silent = False
        self._unknown = 0
        self._malformed: KctlError | None = None
        self._stopped_by: KctlError | None = None
        # The lines of the records that `send` has now.
        self._in_flight: list[int] = []
        self._resume_line: int | None = None
        # Records after the line to resume at that are written already.
        self._written_later = 0
        self._documents: list[dict[str, Any]] = []

    def parse(self, chunk: "Sequence[InputLine]", parse: "Parse") -> "list[NewRecord]":
        """Return the records of a chunk, up to the first malformed one."""
        records = []
        self._in_flight = []
        for number, line in chunk:
            try:
                records.append(parse(line))
            except (KctlError, UnicodeError) as error:
                self._malformed = KctlError(f"Line {number} of the input: {describe(error)[0]}")
                break
            self._in_flight.append(number)
        return records

    def raise_if_malformed(self) -> None:
        """Raise the error of a malformed record, after the records before it were written."""
        if self._malformed is not None:
            error = self._malformed
            if self._is_transactional:
                error.hint = "the transaction was aborted"
                raise error
            error.hint = f"written to {self._topic} before it: {counted(self.written, 'record')}"
            raise error

    def add(self, results: "Sequence[ProducedRecord]", stopped_by: KctlError | None) -> None:
        """Count and print the results of the records that were parsed last."""
        from kctl.client.producer import Outcome

        lines, self._in_flight = self._in_flight, []
        outcomes = [result.outcome for result in results]
        self.written += outcomes.count(Outcome.WRITTEN)
        self._unknown += outcomes.count(Outcome.UNKNOWN)
        rejected = [i for i, outcome in enumerate(outcomes) if outcome is Outcome.REJECTED]
        # The error that stops the run is reported once, not for each record.
        self._list_rejected(
            [(lines[i], results[i]) for i in rejected if results[i].error is not stopped_by]
        )
        self._failed += len(rejected)
        if stopped_by is not None:
            self._stop(stopped_by, lines, [outcome is Outcome.WRITTEN for outcome in outcomes])
        self._print_documents(results)

    def stop(self, error: KctlError) -> None:
        """Record that the run stopped while the records that were parsed last were being sent."""
        lines, self._in_flight = self._in_flight, []
        self._unknown += len(lines)
        self._stop(error, lines, [False] * len(lines))

    def rehearse(self, count: int) -> None:
        """Count the records of a chunk that --dry-run does not write."""
        self.written += count

    def aborted(self, error: KctlError | None) -> None:
        """Record that the transaction was aborted; `error` if the request to do so failed."""
        self._is_aborted = True
        if error is not None:
            self._session.output.say(
                f"note: the transaction could not be aborted ({error}); the broker aborts it "
                "when it times out"
            )

    def finish(self) -> int:
        """Print the rest and the summary; return the exit status."""
        output = self._session.output
        if output.format is not OutputFormat.TABLE and not self._session.dry_run:
            columns = ["topic", "partition", "offset", "timestamp", "status", "error"]
            output.show(self._documents, columns, name="record")
        if self._stopped_by is not None:
            self.say_where_it_stopped()
            return exit_status_of(self._stopped_by)
        verb = "would be written" if self._session.dry_run else "written"
        output.say(f"{counted(self.written, 'record')} {verb} to {self._topic}")
        if self._failed:
            aborted = ": the transaction was aborted" if self._is_aborted else ""
            total = self.written + self._failed
            output.say(f"error: {self._failed} of {counted(total, 'record')} failed{aborted}")
        return FAILED if self._failed else DONE

    def say_where_it_stopped(self) -> None:
        """Print how many records are written and unknown, and how to resume."""
        say = self._session.output.say
        if self._in_flight:
            self.stop(KctlError("interrupted"))
        if self._stopped_by is not None:
            say(f"error: stopped{self._place()}: {describe(self._stopped_by)[0]}")
        say(f"{counted(self.written, 'record')} written to {self._topic} (acknowledged)")
        if self._failed:
            say(f"{counted(self._failed, 'record')} rejected")
        if self._unknown:
            say(
                f"{counted(self._unknown, 'record')} unknown: no acknowledgement arrived, so the "
                "topic has them or not"
            )
        if self._is_transactional:
            say("hint: the transaction is not committed: run the command again with all records")
        elif self._resume_line is not None and self._has_lines:
            say(f"hint: --from-line {self._resume_line} continues there.{self._twice()}")

    def _place(self) -> str:
        if self._resume_line is None:
            return ""
        what = "line" if self._has_lines else "value"
        return f" at {what} {self._resume_line}"

    def _twice(self) -> str:
        """Return a warning about records that a resumed run writes again."""
        again = []
        if self._unknown:
            again.append(f"{counted(self._unknown, 'unknown record')}")
        if self._written_later:
            again.append(f"{counted(self._written_later, 'later record')} that is already written")
        return f" It sends again: {' and '.join(again)}" if again else ""

    def _stop(self, error: KctlError, lines: Sequence[int], are_written: Sequence[bool]) -> None:
        self._stopped_by = self._stopped_by or error
        if self._resume_line is None and not all(are_written):
            first = are_written.index(False)
            self._resume_line = lines[first]
            self._written_later = sum(are_written[first:])

    def _list_rejected(self, rejected: "Sequence[tuple[int, ProducedRecord]]") -> None:
        say = self._session.output.say
        room = max(0, _ERRORS_REPORTED_MAX - self._failed)
        for line, result in rejected[:room]:
            what = "line" if self._has_lines else "value"
            where = f"{self._topic}-{result.partition}"
            say(f"error: {what} {line}: record for {where}: {result.error}")
        if len(rejected) > room and not self._is_silent:
            self._is_silent = True
            say("note: further rejected records are counted, and not listed")

    def _print_documents(self, results: "Sequence[ProducedRecord]") -> None:
        output = self._session.output
        if output.format is OutputFormat.TABLE:
            return
        self._documents += [self._document(result) for result in results]
        if output.format is OutputFormat.NDJSON:
            documents, self._documents = self._documents, []
            output.show(documents, name="record")

    def _document(self, result: "ProducedRecord") -> dict[str, Any]:
        offset = result.offset if result.offset >= 0 else None
        return {
            "record": f"{self._topic}-{result.partition}@{'?' if offset is None else offset}",
            "topic": self._topic,
            "partition": result.partition,
            "offset": offset,
            "timestamp": result.timestamp,
            "status": _STATUS[result.outcome.name],
            "error": None if result.error is None else str(result.error),
        }


_STATUS = {
    "WRITTEN": "written",
    "REJECTED": "failed",
    "UNKNOWN": "unknown",
    "NOT_SENT": "not sent",
}
