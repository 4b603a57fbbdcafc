"""Asks AWS Glue for the versions of schemas, through boto3."""

from importlib import import_module
from typing import Any

from kctl.errors import UnreachableError, UsageError, missing_extra
from kctl.runtime.real.schemas import passes

# Codes with which AWS throttles, or gives up for now, whatever the status of HTTP is.
_BUSY = (
    "OperationTimeoutException", "ProvisionedThroughputExceededException", "RequestLimitExceeded",
    "Throttling", "ThrottledException", "ThrottlingException", "TooManyRequestsException",
)  # fmt: skip


class _MissingError(UsageError):
    """There is no such registry, schema or version."""


class GlueClient:
    """The registry `name` of AWS Glue in `region`.

    Credentials and the endpoint are boto3's: AWS_PROFILE, AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, ...
    """

    def __init__(self, region: str, name: str) -> None:
        """UsageError without boto3, or for an invalid region."""
        try:
            boto3: Any = import_module("boto3")
            self._errors: Any = import_module("botocore.exceptions")
        except ImportError:
            raise missing_extra("AWS Glue needs boto3", "aws") from None
        self._name = name
        try:
            self._client = boto3.client("glue", region_name=region)
        except (self._errors.BotoCoreError, ValueError) as error:
            raise UsageError(f"AWS Glue in {region}: {error}") from None

    def latest(self, schema: str) -> int:
        """Return the number of a schema's latest version.

        UsageError if there is no such schema or permission, UnreachableError without a response, or
        if AWS throttles or fails.
        """
        return int(self._ask("get_schema", SchemaId=self._place(schema))["LatestSchemaVersion"])

    def version(self, schema: str, number: int) -> tuple[str, str, str] | None:
        """Return UUID, kind (AVRO, JSON or PROTOBUF) and text of a version; None if it was deleted
        or is not available. Errors as `latest` has them."""
        wanted = {"VersionNumber": number}
        try:
            found = self._ask(
                "get_schema_version", SchemaId=self._place(schema), SchemaVersionNumber=wanted
            )
        except _MissingError:
            return None
        if found.get("Status", "AVAILABLE") != "AVAILABLE":
            return None
        return (
            str(found["SchemaVersionId"]), str(found["DataFormat"]), str(found["SchemaDefinition"])
        )  # fmt: skip

    def _place(self, schema: str) -> dict[str, str]:
        return {"RegistryName": self._name, "SchemaName": schema}

    def _ask(self, operation: str, **arguments: Any) -> Any:
        try:
            return getattr(self._client, operation)(**arguments)
        except self._errors.ClientError as error:
            facts = error.response.get("Error", {})
            text = f"AWS Glue, registry {self._name}: {facts.get('Message') or error}"
            if facts.get("Code") == "EntityNotFoundException":
                raise _MissingError(text) from None
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
            if passes(status) or facts.get("Code") in _BUSY:
                raise UnreachableError(text) from None
            raise UsageError(text) from None
        except (self._errors.NoCredentialsError, self._errors.ParamValidationError) as error:
            raise UsageError(f"AWS Glue: {error}") from None
        except self._errors.BotoCoreError as error:
            raise UnreachableError(f"AWS Glue: {error}") from None
