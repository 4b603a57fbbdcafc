"""Plan: what one seed of the simulation draws: the cluster, its settings, its clients and faults.

A later kind of fault, and each kind of client, draws from an entropy of its own, so that the other
draws of existing seeds stay the same.
"""

from dataclasses import field, fields

from kctl.lazy_dataclass import dataclass
from kctl.simulation.cluster import LOG_DIRECTORIES
from kctl.simulation.disk import NameOrder
from kctl.simulation.network import Weather
from kctl.simulation.old_controllers import OLD_VERSIONS, ControllerVersions
from kctl.simulation.operator import HABITS, HABITS_OF_FLEETING
from kctl.simulation.runtime import SimEntropy
from kctl.simulation.security import SecurityPlan
from kctl.simulation.transactional_workload import TransactionPlan

FAULTS = (
    "kill", "kill_inside", "stop", "cut", "one_way_cut", "store_cut", "expire", "reset",
    "disk_failure", "pause", "lag", "directory_failure",
)  # fmt: skip


LATER_FAULTS = ("stall", "store_loss")
# Seeds of a thousand whose controllers use an older protocol version.
OLD_CONTROLLER_SEEDS = 200


@dataclass(slots=True)
class Plan:
    """What a seed drew; chances in thousandths per step of the fault loop."""

    broker_count: int = 3
    safety_ms: int = 12_000
    topics: int = 1
    producers: int = 2
    plain_producers: int = 1
    is_durable: bool = False
    name_order: NameOrder = NameOrder.JOURNAL
    # Longest time between two draws of the next fault, in milliseconds.
    step_ms_max: int = 400
    kill: int = 0
    kill_inside: int = 0
    stop: int = 0
    cut: int = 0
    one_way_cut: int = 0
    store_cut: int = 0
    expire: int = 0
    reset: int = 0
    disk_failure: int = 0
    pause: int = 0
    lag: int = 0
    directory_failure: int = 0
    stall: int = 0
    store_loss: int = 0
    # Chance that a fault hits the controller or a leader, where it does most harm.
    chase: int = 0
    # How long a process stays down and a link stays cut, at most.
    down_ms_max: int = 3_000
    cut_ms_max: int = 3_000
    lag_ms_max: int = 400
    weather: Weather = field(default_factory=Weather)
    settings: dict[str, str] = field(default_factory=dict)
    # Weights of the operator's actions besides moves and elections.
    habits: dict[str, int] = field(default_factory=dict)
    transactions: TransactionPlan | None = None
    pipelined_producers: int = 0
    old_controller: ControllerVersions | None = None
    security: SecurityPlan | None = None

    @classmethod
    def drawn(cls, entropy: SimEntropy) -> "Plan":
        """Return the plan that one seed draws."""
        plan = cls()
        plan.broker_count = 4 if entropy.chance(400) else 3
        plan.safety_ms = entropy.between(6_000, 14_000)
        plan.topics = entropy.between(1, 2)
        plan.producers = entropy.between(1, 3)
        plan.plain_producers = entropy.between(0, 2)
        plan.is_durable = entropy.chance(400)
        plan.name_order = entropy.choice(list(NameOrder))
        plan.step_ms_max = entropy.choice([100, 300, 800])
        for name in FAULTS:
            # Half of the faults are off; the others are rare or frequent.
            if entropy.chance(500):
                setattr(plan, name, entropy.choice([20, 80, 250]))
        plan.chase = entropy.choice([0, 300, 800])
        plan.down_ms_max = entropy.choice([200, 1_500, 4_000])
        plan.cut_ms_max = entropy.choice([300, 1_500, 5_000])
        plan.lag_ms_max = entropy.choice([50, 400, 1_500])
        weather = plan.weather
        weather.delay_us_max = entropy.choice([300, 2_000, 20_000])
        weather.slow_chance = entropy.choice([0, 10, 50])
        weather.slow_us_max = entropy.choice([20_000, 200_000])
        weather.split_chance = entropy.choice([0, 50, 500])
        weather.reset_chance = entropy.choice([0, 0, 1, 5])
        plan.settings = {
            "inter.broker.protocol.version": entropy.choice(
                ["2.7-IV2", "2.7-IV2", "2.7-IV2", "2.6"]
            ),
            "auto.leader.rebalance.enable": entropy.choice(["true", "false"]),
            "log.segment.bytes": str(entropy.choice([2_000, 20_000, 1 << 20])),
            "replica.lag.time.max.ms": entropy.choice(["500", "1000", "3000"]),
        }
        if plan.is_durable:
            plan.settings["log.flush.interval.messages"] = "1"
        plan._draw_habits(entropy)
        return plan

    def draw_later_faults(self, entropy: SimEntropy) -> None:
        """Draw faults that were added later; their own entropy leaves all other draws unchanged."""
        for name in LATER_FAULTS:
            if entropy.chance(300):
                setattr(self, name, entropy.choice([20, 80]))
        if entropy.chance(OLD_CONTROLLER_SEEDS):
            versions = self.old_controller = entropy.choice(list(OLD_VERSIONS))
            self.settings["inter.broker.protocol.version"] = versions.protocol

    def _draw_habits(self, entropy: SimEntropy) -> None:
        self.habits = {name: entropy.choice([2, 6]) for name in HABITS if entropy.chance(300)}
        if any(name in self.habits for name in HABITS_OF_FLEETING):
            self.topics = 1
        if "cut" in self.habits:
            self.settings["log.retention.check.interval.ms"] = "700"
        if "move_directory" in self.habits:
            self.settings["log.dirs"] = ",".join(LOG_DIRECTORIES)

    def __str__(self) -> str:
        settings = [f"{it.name}={getattr(self, it.name)}" for it in fields(self)]
        return " ".join(settings)
