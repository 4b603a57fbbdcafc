"""kctl cluster features and kctl cluster upgrade-features."""

from typing import TYPE_CHECKING, Annotated

from kctl.cli.connect import parse_pairs
from kctl.cli.declaration.command import INT16_MAX
from kctl.cli.declaration.declarations import Argument
from kctl.cli.failures import DONE
from kctl.cli.items import row, show_results
from kctl.cli.output import Table
from kctl.cli.session import Question, Session
from kctl.counts import counted, is_whole_number
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.features import FeatureUpgrade

_COLUMNS = ("feature", "level", "min_level", "max_level")
_CHANGE_COLUMNS = ("feature", "level", "new_level")


def features(session: Session) -> int:
    """Show the features of a cluster: the level in use, and those that the brokers support.

    A feature is a format or protocol that all brokers must have before one may use it, such as
    metadata.version. Level 0 is off. Kafka 2.7 reports features, but has none.

    \b
    Examples:
      kctl cluster features
      kctl cluster features -o json
    """
    found = session.run(lambda admin: admin.features.describe())
    rows = [
        {
            "feature": it.name,
            "level": it.level,
            "min_level": it.min_level,
            "max_level": it.max_level,
        }
        for it in found.features
    ]
    session.output.show(rows, _COLUMNS, name="feature")
    if not rows:
        session.output.say("The cluster has no features.")
    return DONE


def upgrade_features(
    session: Session,
    levels: Annotated[
        list[str], Argument(metavar="FEATURE=LEVEL", help="Features and their new levels.")
    ],
) -> int:
    """Raise features to higher levels, all of them or none.

    Brokers of earlier releases cannot join the cluster afterwards, and most upgrades of
    metadata.version cannot be undone. With --dry-run, the controller checks the upgrade only.

    \b
    Examples:
      kctl cluster upgrade-features share.version=1 --dry-run
      kctl cluster upgrade-features metadata.version=27 --yes
    """
    wanted = {name: _level(name, text) for name, text in parse_pairs(levels, "FEATURE").items()}

    def question(plan: "FeatureUpgrade") -> Question | None:
        if not plan.changes:
            return None
        rows = [
            {"feature": it.name, "level": it.old_level, "new_level": it.new_level}
            for it in plan.changes
        ]
        text = f"Upgrade {counted(len(rows), 'feature')}?"
        return Question(Table(_CHANGE_COLUMNS, rows), text)

    change = session.change(
        lambda admin: admin.features.plan_upgrade(wanted),
        question,
        lambda admin, plan: admin.features.upgrade(plan, validate_only=session.dry_run),
        has_broker_dry_run=True,
    )
    if change.is_declined:
        return DONE
    if not change.plan.changes:
        session.output.say("The features have these levels already.")
    status = "would upgrade" if session.dry_run else "upgraded"
    error = None if change.result is None else change.result.error
    rows = [
        row("feature", it.name, status, error, level=it.old_level, new_level=it.new_level)
        for it in change.plan.changes
    ]
    return show_results(session, rows, "feature")


def _level(name: str, text: str) -> int:
    if not is_whole_number(text, INT16_MAX):
        raise UsageError(f"Not a level of {name}: {text}", hint="e.g. metadata.version=27")
    return int(text)
