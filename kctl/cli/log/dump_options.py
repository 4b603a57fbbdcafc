"""The options of kctl dump-log, in groups: what to read, what to show of it, and how."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from kctl.cli.declaration.declarations import Argument, Option
from kctl.cli.items import positive
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.dump.values import Decoder


class DumpFormat(StrEnum):
    """How the dump is printed."""

    TEXT = "text"
    JSON = "json"
    NDJSON = "ndjson"
    KAFKA = "kafka"


PathsArgument = Annotated[
    list[str] | None, Argument(metavar="PATH...", help="Files or directories.")
]
FilesOption = Annotated[
    str | None, Option("--files", metavar="FILE,...", help="The same as PATH, with commas.")
]
PrintDataLogOption = Annotated[
    bool, Option("--print-data-log", help="Show records with keys and values.")
]
DeepIterationOption = Annotated[
    bool, Option("--deep-iteration", help="Show records, not only batches.")
]
OffsetsDecoderOption = Annotated[
    bool, Option("--offsets-decoder", help="Read records as those of __consumer_offsets.")
]
TransactionDecoderOption = Annotated[
    bool,
    Option("--transaction-log-decoder", help="Read records as those of __transaction_state."),
]
MetadataDecoderOption = Annotated[
    bool,
    Option(
        "--cluster-metadata-decoder", help="Read records as those of __cluster_metadata (KRaft)."
    ),
]
ShareDecoderOption = Annotated[
    bool,
    Option("--share-group-state-decoder", help="Read records as those of __share_group_state."),
]
RawOption = Annotated[bool, Option("--raw", help="Do not decode internal topics by their names.")]
FormatOption = Annotated[
    DumpFormat, Option("--format", "-o", help="kafka: the exact text of kafka-dump-log 2.7.")
]
HexOption = Annotated[bool, Option("--hex", help="Show batches byte by byte, annotated.")]
KeyOption = Annotated[
    list[str] | None, Option("--key", metavar="KEY", help="Only records with that key.")
]
FollowOption = Annotated[bool, Option("--follow", help="Continue as the log grows, until Ctrl-C.")]
StatsOption = Annotated[
    bool, Option("--stats", help="Counts, sizes, codecs, histograms and most frequent keys.")
]
WhereOption = Annotated[
    bool,
    Option("--where", help="Only show which partition has --group or --transactional-id."),
]
VerifyIndexOption = Annotated[
    bool, Option("--verify-index-only", help="Check index files, do not show their entries.")
]
SanityOption = Annotated[
    bool, Option("--index-sanity-check", help="Only check that index files are valid.")
]
MaxMessageSizeOption = Annotated[
    int | None,
    Option(
        "--max-message-size",
        metavar="BYTES",
        help="Ignored, for kafka-dump-log's scripts: batches may have any size.",
    ),
]


@dataclass
class PathOptions:
    """Which files are read."""

    paths: PathsArgument = None
    files: FilesOption = None

    def all(self) -> list[str]:
        """Return the paths of both options; raise UsageError without any."""
        found = [*(self.paths or ()), *(file for file in (self.files or "").split(",") if file)]
        if not found:
            raise UsageError("Name a file or a directory: PATH, or --files FILE,...")
        return found


@dataclass
class RecordOptions:
    """Whether records are shown, and how those of internal topics are decoded."""

    print_data_log: PrintDataLogOption = False
    deep_iteration: DeepIterationOption = False
    offsets_decoder: OffsetsDecoderOption = False
    transaction_log_decoder: TransactionDecoderOption = False
    cluster_metadata_decoder: MetadataDecoderOption = False
    share_group_state_decoder: ShareDecoderOption = False
    is_raw: RawOption = False

    @property
    def with_data(self) -> bool:
        """Return whether records are shown with keys and values; a decoder implies that."""
        return (
            self.print_data_log
            or self.offsets_decoder
            or self.transaction_log_decoder
            or self.cluster_metadata_decoder
            or self.share_group_state_decoder
        )

    def decoder(self, dump_format: DumpFormat) -> "Decoder":
        """Return the decoder that is named, or that of the format; raise UsageError for two."""
        from kctl.dump.values import Decoder

        by_option = {
            Decoder.OFFSETS: self.offsets_decoder,
            Decoder.TRANSACTIONS: self.transaction_log_decoder,
            Decoder.CLUSTER_METADATA: self.cluster_metadata_decoder,
            Decoder.SHARE_GROUPS: self.share_group_state_decoder,
            Decoder.NONE: self.is_raw,
        }
        given = [decoder for decoder, is_given in by_option.items() if is_given]
        if len(given) > 1:
            raise UsageError("Only one decoder may be given, or --raw")
        if given:
            return given[0]
        return Decoder.NONE if dump_format is DumpFormat.KAFKA else Decoder.AUTO


@dataclass
class LayoutOptions:
    """How the dump is printed."""

    dump_format: FormatOption = DumpFormat.TEXT
    is_hex: HexOption = False


@dataclass
class ModeOptions:
    """What the command does besides one dump of the files."""

    is_followed: FollowOption = False
    is_stats: StatsOption = False
    is_where: WhereOption = False
    verify_index_only: VerifyIndexOption = False
    index_sanity_check: SanityOption = False
    max_message_size: MaxMessageSizeOption = None

    def check(self) -> None:
        """Raise UsageError for a size that is not positive."""
        positive(self.max_message_size, "--max-message-size")
