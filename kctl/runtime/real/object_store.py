"""The object store that the environment names, as pyiceberg's properties."""

import os

# pyiceberg's property to the variables of AWS's tools that Arrow and delta-rs read, by precedence.
_S3_VARIABLES = {
    "s3.endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "s3.region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}


def storage_properties() -> dict[str, str]:
    """Return the properties by which pyiceberg uses that object store.

    It reads credentials from there, but not the endpoint: tables would be looked for at AWS.
    """
    found = {}
    for name, variables in _S3_VARIABLES.items():
        values = [value for it in variables if (value := os.environ.get(it))]
        if values:
            found[name] = values[0]
    return found
