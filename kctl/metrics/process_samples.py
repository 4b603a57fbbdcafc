"""The samples of a process: CPU, memory, descriptors, disks."""

from kctl.metrics import broker_families as f
from kctl.metrics.family import Family, Number, Sample, Samples
from kctl.runtime.process_facts import ProcessFacts


def process_samples(facts: ProcessFacts) -> Samples:
    """Yield what is known of the process, under the names of Prometheus' clients."""
    return _known(
        (f.CPU_SECONDS, facts.cpu_seconds),
        (f.RESIDENT_BYTES, facts.resident_bytes),
        (f.OPEN_FILES, facts.open_files),
        (f.MAX_FILES, facts.max_files),
        (f.START_SECONDS, facts.start_seconds),
    )


def disk_samples(facts: ProcessFacts) -> Samples:
    """Yield what the process moved from and to disks, under Kafka's names."""
    return _known((f.DISK_READ, facts.disk_read_bytes), (f.DISK_WRITE, facts.disk_write_bytes))


def _known(*values: tuple[Family, Number | None]) -> Samples:
    for family, value in values:
        if value is not None:
            yield Sample(family, (), value)
