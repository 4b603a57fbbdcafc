"""kctl quota top: who is throttled, from what kctl's brokers and the JMX exporter serve."""

from types import SimpleNamespace

import pytest

from kctl.admin.broker_metrics import BrokerScrape, MetricsSource
from kctl.admin.client_quotas import DEFAULT_ENTITY, QuotaEntity
from kctl.admin.cluster_activity import BrokerPlace, Look, broker_rows, quota_rows, topic_rows
from kctl.admin.quota_usage import NO_QUOTA_METRICS, limit_of, notes_of
from kctl.configs.urls import check_metrics_url
from kctl.errors import UsageError
from kctl.metrics.parse import parse_metrics
from kctl.model import TopicPartition

RATE = "producer_byte_rate"
KCTL = """
kafka_server_produce_byte_rate{{user="",client_id="fast"}} 12000.0
kafka_server_produce_throttle_time{{user="",client_id="fast"}} 1250.0
kctl_quota_limit{{quota="producer_byte_rate",user="",client_id="fast"}} 10000
kctl_quota_throttled_total{{quota="producer_byte_rate",user="",client_id="fast"}} {count}
kctl_quota_paused_seconds{{quota="producer_byte_rate",user="",client_id="fast"}} {paused}
kafka_server_controllermutation_tokens{{user="",client_id="fast"}} {tokens}
"""
# As the exporter writes attributes of kafka.server:type=Produce,user=...,client-id=...
APACHE = """
kafka_server_produce_byte_rate{user="ann%40x",client_id="app",} 5000.0
kafka_server_produce_throttle_time{user="ann%40x",client_id="app",} NaN
kafka_server_fetch_byte_rate{user="ann%40x",client_id="",} 900.0
kafka_server_fetch_throttle_time{user="ann%40x",client_id="",} 80.5
"""


def scrape(text, url="http://b:9404/metrics", broker_id=1):
    return {url: BrokerScrape(url, broker_id, parse_metrics(text))}


def rows(now, before=None, quotas=None):
    looks = [
        Look(0, quotas=quotas or {}, scrapes=scrape(text)) if text is not None else None
        for text in (before, now)
    ]
    return quota_rows(*looks)


@pytest.mark.parametrize(
    ("before", "count", "paused", "is_throttled"),
    [(None, 3, 0, False), (None, 3, 0.5, True), (2, 3, 0, True), (3, 3, 0, False)],
)
def test_a_client_of_kctl_is_throttled_while_it_is_paused_or_was_since_the_last_look(
    before, count, paused, is_throttled
):
    earlier = None if before is None else KCTL.format(count=before, paused=0, tokens=1)
    found = rows(KCTL.format(count=count, paused=paused, tokens=1), earlier)

    produced = found[0]
    assert (produced["client"], produced["quota"]) == ("client-id=fast", RATE)
    assert (produced["used"], produced["limit"], produced["share"]) == (12000, 10000, 1.2)
    assert (produced["throttled"], produced["throttle_ms"]) == (is_throttled, 1250)
    assert produced["broker"] == 1


def test_a_client_without_tokens_waits():
    mutations = rows(KCTL.format(count=0, paused=0, tokens=-0.5))[1]
    assert (mutations["quota"], mutations["throttled"]) == ("controller_mutation_rate", True)
    assert mutations["used"] is None


def test_clients_of_apache_kafka_have_the_limits_of_the_api():
    quotas = {
        QuotaEntity("ann@x", "app"): {RATE: 10_000.0},
        QuotaEntity(DEFAULT_ENTITY): {"consumer_byte_rate": 1_000.0},
    }
    fetched, produced = rows(APACHE, quotas=quotas)
    assert (fetched["limit"], fetched["throttled"], fetched["throttle_ms"]) == (1_000, True, 80.5)
    assert (produced["limit"], produced["throttled"], produced["throttle_ms"]) == (10_000, False, 0)


def test_without_metrics_there_are_only_the_quotas():
    quotas = {QuotaEntity("ann"): {RATE: 10.0}}
    [row] = quota_rows(None, Look(0, quotas=quotas))
    assert (row["client"], row["limit"], row["throttled"]) == ("user=ann", 10.0, None)
    assert notes_of(scrape("up 1").values()) == [f"http://b:9404/metrics {NO_QUOTA_METRICS}"]


def test_the_most_specific_quota_limits_a_client():
    quotas = {
        QuotaEntity("u", "c"): {RATE: 1.0}, QuotaEntity("u", DEFAULT_ENTITY): {RATE: 2.0},
        QuotaEntity(DEFAULT_ENTITY, "c"): {RATE: 3.0},
        QuotaEntity(None, DEFAULT_ENTITY): {RATE: 4.0},
    }  # fmt: skip
    found = [limit_of(quotas, RATE, *it) for it in (("u", "c"), ("u", "d"), ("v", "c"), ("", "x"))]
    assert found == [1, 2, 3, 4]
    assert limit_of(quotas, RATE, "v", "") is None


def test_places_of_metrics_become_urls():
    brokers = [BrokerPlace(1, "a", 9092, None), BrokerPlace(2, "::1", 9092, None)]
    source = MetricsSource((":9404", "b:1", "https://a:2/", "http://a/x"))
    assert source.urls(brokers) == {
        "http://a:9404/metrics": 1, "http://[::1]:9404/metrics": 2, "http://b:1/metrics": None,
        "https://a:2/metrics": 1, "http://a/x": 1,
    }  # fmt: skip
    secured = MetricsSource((":1",), "Bearer secret", "ca.pem")
    assert list(secured.urls(brokers[:1])) == ["https://a:1/metrics"]
    assert "secret" not in repr(secured)


def test_a_token_travels_in_clear_only_on_this_machine():
    check_metrics_url("http://127.0.0.1:1/metrics", has_secret=True)
    check_metrics_url("http://far:1/metrics", has_secret=False)
    for url, has_secret in (("http://far/metrics", True), ("file:///etc/passwd", False)):
        with pytest.raises(UsageError):
            check_metrics_url(url, has_secret=has_secret)


COUNTERS = """
kafka_server_brokertopicmetrics_bytesin_total {total}
kafka_server_brokertopicmetrics_bytesin_total{{topic="t"}} {total}
kafka_server_brokertopicmetrics_bytesout_total {out}
kafka_server_brokertopicmetrics_bytesout_total{{topic="t"}} {out}
kafka_network_requestmetrics_requests_total{{request="Produce",version="8"}} {total}
kafka_network_requestmetrics_requests_total{{request="Fetch",version="11"}} 1
kafka_network_requestmetrics_requests_total{{request="FetchConsumer",version="11"}} {total}
kafka_network_requestmetrics_requests_total{{request="FetchFollower",version="11"}} {total}
kctl_loop_busy_ratio 0.25
"""


def test_rates_are_those_of_the_brokers_counters():
    def look(ms, total, out):
        it = Look(ms, [BrokerPlace(1, "b", 9092, None)], scraped_ms=ms)
        it.leaders = {TopicPartition("t", 0): 1}
        it.scrapes = scrape(COUNTERS.format(total=total, out=out))
        return it

    before, now = look(1_000, 100, 500), look(3_000, 300, 1_500)
    [topic] = topic_rows(before, now)
    assert (topic["bytes_s"], topic["out_s"]) == (100, 500)
    [broker] = broker_rows(before, now)
    assert (broker["out_s"], broker["requests_s"], broker["busy"]) == (500, 100, 0.25)
    # The broker was restarted, and one of two brokers' counters are no rate of a topic.
    assert "out_s" not in topic_rows(now, before)[0]
    now.brokers.append(SimpleNamespace(broker_id=2, host="c", port=1, rack=None))
    assert "out_s" not in topic_rows(before, now)[0]
