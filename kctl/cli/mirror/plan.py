"""kctl mirror plan: what a mirror would change in the target."""

from typing import TYPE_CHECKING, Any

from kctl.cli.failures import DONE, FAILED
from kctl.cli.mirror.ends import EndOptions
from kctl.cli.mirror.topic_options import TopicOptions
from kctl.counts import counted

if TYPE_CHECKING:
    from kctl.mirror.mirror_plan import TopicPlan


def plan(ends: EndOptions, topics: TopicOptions) -> int:
    """Show which topics `kctl mirror run` would copy, and what it would create and change in the
    target. Nothing is changed. Exit with 1 if a topic cannot be mirrored.

    \b
    Examples:
      kctl mirror plan --source dc1:9092 --target dc2:9092 --topics 'orders*'
      kctl mirror plan --source dc1:9092 --target dc2:9092 --topics '*' --rename 'dc1.{topic}'
      kctl mirror plan --source /backup/kafka-logs --target dc2:9092 --topics '*'
    """
    from kctl.mirror.topics import plan_mirror

    choice = topics.choice()
    session = ends.session()
    planned = ends.run_from(
        session, lambda source, target: plan_mirror(source, target, choice), topics=topics.topics
    )
    columns = ["topic", "target", "step", "partitions", "changes"]
    session.output.show([document_of(each) for each in planned.topics], columns, name="target")
    is_refused = any(each.reason is not None for each in planned.topics)
    return FAILED if is_refused else DONE


def document_of(plan: "TopicPlan") -> dict[str, Any]:
    """Return the plan for a topic as a document."""
    changes = [f"{name}={value}" for name, value in sorted(plan.configs.items())]
    if plan.adds_partitions:
        changes.insert(0, f"{counted(plan.partitions - plan.partitions_before, 'partition')} more")
    return {
        "topic": plan.source,
        "target": plan.target,
        "step": str(plan.step),
        "partitions": plan.partitions,
        "changes": plan.reason or ", ".join(changes) or None,
    }
