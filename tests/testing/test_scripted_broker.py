"""ScriptedBroker, as users of kctl.testing use it."""

from kctl.client.router import Router
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kctl.testing.scripted_broker import ScriptedBroker

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def test_answers_follow_the_script_and_the_last_one_repeats(loop):
    broker = ScriptedBroker(loop.runtime, topics={"orders": 3}).start()
    broker.answer(
        ApiKey.HEARTBEAT, HeartbeatResponse(error_code=27), HeartbeatResponse(error_code=0)
    )
    router = Router(loop.runtime, [broker.address])
    codes = [loop.run(router.send_to_any(HEARTBEAT)).error_code for _ in range(3)]
    assert codes == [27, 0, 0]
    assert len(broker.requests(ApiKey.HEARTBEAT)) == 3
    router.close()
    broker.stop()


def test_without_a_script_it_describes_itself_and_its_topics(loop):
    broker = ScriptedBroker(loop.runtime, topics={"orders": 3}).start()
    router = Router(loop.runtime, [broker.address])
    view = loop.run(router.refresh(["orders", "other"]))
    assert view.partitions_of("orders") == [0, 1, 2]
    assert view.partitions_of("other") == []
    assert loop.run(router.coordinator_of("g")).port == broker.port
    router.close()
    broker.stop()


def test_delayed_responses_are_sent_in_order_on_release(loop):
    broker = ScriptedBroker(loop.runtime).start()
    broker.answer(
        ApiKey.HEARTBEAT, HeartbeatResponse(error_code=27), HeartbeatResponse(error_code=0)
    )
    router = Router(loop.runtime, [broker.address])
    broker.hold(ApiKey.HEARTBEAT)
    asked = [loop.scheduler.spawn(router.send_to_any(HEARTBEAT)) for _ in range(2)]
    loop.until(lambda: len(broker.requests(ApiKey.HEARTBEAT)) == 2)
    loop.turns()
    assert not any(it.done for it in asked)
    broker.release()
    assert [loop.wait(it).error_code for it in asked] == [27, 0]
    router.close()
    broker.stop()


def test_a_function_answers_depending_on_the_request(loop):
    broker = ScriptedBroker(loop.runtime).start()
    broker.answer(
        ApiKey.HEARTBEAT,
        lambda request: HeartbeatResponse(error_code=request.body.generation_id),
    )
    router = Router(loop.runtime, [broker.address])
    assert loop.run(router.send_to_any(HEARTBEAT)).error_code == 1
    router.close()
    broker.stop()
