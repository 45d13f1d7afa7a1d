"""Zombies, races, storms, forks and deployments, as on a file, with journals in PostgreSQL."""

from __future__ import annotations

import pytest

from tests.conftest import Figure
from tests.mail.test_mail_storm import (
    test_every_letter_is_read_once_and_no_run_sleeps_with_mail,
)
from tests.processes.test_fork import test_the_app_of_a_forked_child_is_closed
from tests.processes.test_leases import (
    test_a_blocked_loop_keeps_nobodys_commits,
    test_what_takes_longer_than_the_lease_is_not_taken_over,
)
from tests.processes.test_races import test_of_all_who_race_for_a_run_one_drives_it
from tests.processes.test_storm import test_a_storm_of_kills_loses_and_repeats_nothing
from tests.processes.test_zombies import (
    test_nobody_can_say_too_early_that_it_did_not_happen,
    test_zombies_are_refused_at_their_first_append,
)
from tests.workers.test_rolling_deploy import test_a_rolling_deploy_loses_and_repeats_nothing

__all__ = [
    "test_a_blocked_loop_keeps_nobodys_commits",
    "test_a_rolling_deploy_loses_and_repeats_nothing",
    "test_a_storm_of_kills_loses_and_repeats_nothing",
    "test_every_letter_is_read_once_and_no_run_sleeps_with_mail",
    "test_nobody_can_say_too_early_that_it_did_not_happen",
    "test_of_all_who_race_for_a_run_one_drives_it",
    "test_the_app_of_a_forked_child_is_closed",
    "test_what_takes_longer_than_the_lease_is_not_taken_over",
    "test_zombies_are_refused_at_their_first_append",
]

pytestmark = pytest.mark.alone("postgres")


@pytest.fixture
def figure(figure: Figure) -> Figure:
    """The tests of files have the same figures."""
    return lambda name, value: figure(f"postgresql: {name}", value)
