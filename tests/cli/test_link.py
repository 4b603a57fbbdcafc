"""kctl link, where there is nothing to follow: what is no link is an error."""

import pytest


@pytest.mark.parametrize("name", ["absent", "ordinary"])
def test_a_topic_that_is_no_link_is_named(kctl, kctl_broker, name):
    address = ("-b", kctl_broker)
    created = kctl("topic", "create", "ordinary", "--if-not-exists", *address)
    assert created.status == 0, created.err
    for command in ("describe", "failover"):
        ran = kctl("link", command, name, *address)
        assert ran.status != 0
        assert f"error: Not a link: {name}\nhint: see kctl link list" in ran.err
    assert kctl("link", "describe", *address).status == 0
