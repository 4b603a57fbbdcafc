"""Groups keep their invariants under random requests in any order.

Random members join, sync, send heartbeats, leave, commit and vanish, on a log that commits late and
fails, under a coordinator that moves. The responses that members get must be consistent:

- a member id gets at most one assignment in a generation, and all assignments of a generation
  come from its one leader's plan, so that no partition has two owners in a generation;
- a generation in which a member got an assignment never begins again (one without assignments
  may, under a coordinator that does not know it);
- an acknowledged commit is what is fetched, until the next one;
- no request is answered twice, and, once failures stop, no request waits forever.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.support.group_invariants import check_groups
from tests.support.group_world import GroupWorld

LOG_ERRORS = (19, 7, 6)
PROTOCOLS = ({"range": b"1"}, {"range": b"2"}, {"sticky": b"1", "range": b"1"})


class Consumer:
    """A client's view of its membership."""

    def __init__(self, instance_id):
        self.instance_id = instance_id
        self.protocols = PROTOCOLS[0]
        self.member_id = ""
        self.generation_id = -1
        self.joining = None
        self.syncing = None
        self.leads = False

    def forget(self):
        self.member_id = ""
        self.generation_id = -1
        self.joining = self.syncing = None


class Groups(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 1000))
    def begin(self, seed):
        self.world = GroupWorld(seed=seed).elect()
        self.epoch = 0
        self.consumers = [Consumer(None), Consumer(None), Consumer("i1"), Consumer("i1")]
        self.asked = []
        # Generation -> the plan from which its members' assignments come.
        self.plans = {}
        # The offsets that may be fetched for the one partition: several while commits are
        # uncertain.
        self.possible_offsets = {-1}
        self.commits = []
        self.next_offset = 0

    consumer = st.integers(0, 3)

    @rule(number=consumer, protocols=st.sampled_from(PROTOCOLS))
    def join(self, number, protocols):
        consumer = self.consumers[number]
        if consumer.joining is None and consumer.syncing is None:
            consumer.protocols = protocols
            self._join(consumer)

    def _join(self, consumer):
        answer = self.world.join(
            consumer.member_id,
            instance_id=consumer.instance_id,
            protocols=consumer.protocols,
            rebalance_ms=12_000,
        )
        self.asked.append(answer)
        consumer.joining = answer
        self._process_responses()

    @rule(number=consumer)
    def sync(self, number):
        consumer = self.consumers[number]
        if consumer.generation_id > 0 and consumer.joining is None and consumer.syncing is None:
            plan = None
            if consumer.leads:
                name = b"%d" % consumer.generation_id
                plan = {m: name + m.encode() for m in self.members_seen}
            consumer.syncing = self.world.sync(
                consumer.member_id,
                consumer.generation_id,
                plan,
                instance_id=consumer.instance_id,
            )
            self.asked.append(consumer.syncing)
            self._process_responses()

    @rule(number=consumer)
    def heartbeat(self, number):
        consumer = self.consumers[number]
        if consumer.generation_id > 0:
            code = self.world.heartbeat(
                consumer.member_id, consumer.generation_id, instance_id=consumer.instance_id
            )
            if code in (25, 82):
                consumer.forget()

    @rule(number=consumer)
    def leave(self, number):
        consumer = self.consumers[number]
        if consumer.member_id and self.epoch >= 0:
            self.world.leave((consumer.member_id, consumer.instance_id))
            self._process_responses()
            consumer.forget()

    @rule(number=consumer)
    def vanish(self, number):
        self.consumers[number].forget()

    @rule(number=consumer)
    def commit(self, number):
        consumer = self.consumers[number]
        self.next_offset += 1
        answer = self.world.commit(
            {("t", 0): self.next_offset},
            member_id=consumer.member_id,
            generation_id=consumer.generation_id,
        )
        self.commits.append((self.next_offset, answer))
        self.asked.append(answer)
        self._process_responses()

    @rule(delay_ms=st.sampled_from([1, 1_000, 5_000, 11_000]))
    def wait(self, delay_ms):
        self.world.advance(delay_ms)
        self._process_responses()

    @rule()
    def hold_the_log(self):
        self.world.log.is_holding = True

    @rule()
    def release_the_log(self):
        self.world.log.release()
        self.world.scheduler.settle()
        self._process_responses()

    @rule(code=st.sampled_from(LOG_ERRORS))
    def fail_the_next_append(self, code):
        self.world.log.failures = [code]

    @rule()
    def move_the_coordinator(self):
        """Resign, and load the groups from the log again."""
        self.world.service.on_resigned(0, self.epoch + 1)
        self.world.log.release()
        self.epoch += 2
        self.world.elect(epoch=self.epoch)
        self._process_responses()

    def _process_responses(self):
        """Process the responses to clients."""
        for consumer in self.consumers:
            if consumer.joining is not None and consumer.joining.is_there:
                self._joined(consumer, consumer.joining.response)
            if consumer.syncing is not None and consumer.syncing.is_there:
                self._synced(consumer, consumer.syncing.response)
        self._process_commits()

    def _joined(self, consumer, response):
        consumer.joining = None
        if response.error_code == 79:
            consumer.member_id = response.member_id
        elif response.error_code in (25, 82, 23):
            consumer.forget()
        elif response.error_code == 0:
            consumer.member_id = response.member_id
            consumer.generation_id = response.generation_id
            consumer.leads = response.leader == response.member_id
            if response.members:
                assert consumer.leads
                self.members_seen = [member.member_id for member in response.members]
                assert response.member_id in self.members_seen

    members_seen = ()

    def _synced(self, consumer, response):
        consumer.syncing = None
        if response.error_code == 0:
            generation = b"%d" % consumer.generation_id
            assignments = response.assignment
            if assignments:
                assert assignments.startswith(generation)
                owner = assignments[len(generation) :].decode()
                # A static member gets the assignment of its previous instance.
                assert owner == consumer.member_id or consumer.instance_id is not None
                owners = self.plans.setdefault(consumer.generation_id, {})
                place = consumer.instance_id or consumer.member_id
                assert owners.setdefault(assignments, place) == place, "two owners in a generation"
        elif response.error_code in (25, 82):
            consumer.forget()

    def _process_commits(self):
        waiting = []
        for offset, answer in self.commits:
            if not answer.is_there:
                waiting.append((offset, answer))
            elif answer.response == [0]:
                self.possible_offsets = {offset}
            elif answer.response[0] in (16, 7, 15):
                # It may still be in the log, where the next coordinator finds it.
                self.possible_offsets.add(offset)
        self.commits = waiting

    @invariant()
    def groups_are_sound(self):
        check_groups(self.world.shard)

    @invariant()
    def generations_with_an_assignment_never_come_back(self):
        group = self.world.shard.groups.get("g")
        if group is not None:
            assert group.generation_id >= max(self.plans, default=0)

    @invariant()
    def no_request_is_answered_twice(self):
        for answer in self.asked:
            assert len(answer.responses) <= 1
        self.asked = [answer for answer in self.asked if not answer.is_there]

    @invariant()
    def acknowledged_commits_are_fetched(self):
        unsure = {offset for offset, _ in self.commits}
        found = self.world.committed(("t", 0))[("t", 0)]
        assert found in self.possible_offsets | unsure

    def teardown(self):
        """End the failures: the log works and time passes; all requests are answered."""
        if not hasattr(self, "world"):
            return
        self.world.log.failures = []
        self.world.log.release()
        self.world.scheduler.settle()
        self.world.advance(400_000)
        assert all(answer.is_there for answer in self.asked)
        assert self.world.state() in ("Empty", "Dead")


TestGroups = Groups.TestCase
TestGroups.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
