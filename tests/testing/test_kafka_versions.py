"""`kctl_as_version` serves the versions that brokers of older releases report."""

import pytest
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS  # as brokers answered

from kctl.broker.handlers import HANDLERS
from kctl.errors import UsageError
from kctl.testing.kafka_versions import NATIVE, RELEASES, served_as


@pytest.mark.parametrize("release", [it for it in RELEASES if it != NATIVE])
def test_last_versions_are_those_that_brokers_of_the_release_report(release):
    answered = BROKER_API_VERSIONS[tuple(map(int, release.split(".")))]
    assert {key: last for key, (_, last) in served_as(release).items()} == {
        key: answered[key][1] for key in HANDLERS if key in answered
    }


def test_release_2_7_serves_everything():
    assert served_as(NATIVE) is None


def test_an_unknown_release_is_rejected_with_the_known_ones():
    with pytest.raises(UsageError) as refused:
        served_as("3.0")
    assert "2.4" in refused.value.hint
