"""Which tests try to break which promise: the source of docs/reference/promises.md.

What a test does is its docstring, and how much of it is tried by default and in full is read from
its source. ``kills``: it kills real processes, by default too.
"""

from __future__ import annotations

from typing import NamedTuple


class Trial(NamedTuple):
    """One test of a promise."""

    test: str
    kills: bool = False
    #: How much is tried by default and in full, where the test's own source does not say it.
    daily: str = ""
    full: str = ""


def killing(test: str, daily: str = "", full: str = "") -> Trial:
    """A test that kills real processes."""
    return Trial(test, True, daily, full)


_POINTS = "tests/crash/test_crash_points.py"
_SIMULATED = "tests/simulation/test_simulation.py"
_SEEDS = Trial(f"{_SIMULATED}::test_every_seed_keeps_every_promise")
_PAIRS = Trial(f"{_SIMULATED}::test_pinned_seeds_meet_every_fault")
_MUTANTS = Trial(
    "tests/mutants/test_mutants.py::test_the_simulation_finds_the_mutant",
    daily="the pinned seeds of each mutant",
    full="these, and a hunt through 400",
)
_CALLS = killing(f"{_POINTS}::test_killed_at_every_store_call")
_MOMENTS = killing(f"{_POINTS}::test_killed_at_every_moment")
_STORM = killing("tests/processes/test_storm.py::test_a_storm_of_kills_loses_and_repeats_nothing")
_DEPLOY = Trial(
    "tests/workers/test_rolling_deploy.py::test_a_rolling_deploy_loses_and_repeats_nothing"
)

PROMISES: dict[str, tuple[Trial, ...]] = {
    "P1": (
        _CALLS,
        killing(f"{_POINTS}::test_killed_at_every_write"),
        killing("tests/checkpoints/test_kill.py::test_on_sqlite", "every third call", "every call"),
        killing("tests/postgres/test_weather.py::test_a_server_that_crashes"),
        Trial("tests/stores/test_power_cut.py::test_nothing_acknowledged_is_lost"),
        Trial("tests/processes/test_failing_disk.py::test_a_failed_flush_ends_the_worker"),
        Trial("tests/acceptance/test_verify.py::test_every_flipped_bit_is_found"),
        Trial("tests/acceptance/test_verify.py::test_every_truncation_is_found"),
        _SEEDS,
        _PAIRS,
        _MUTANTS,
    ),
    "P2": (
        _MOMENTS,
        killing(f"{_POINTS}::test_killed_again_while_it_recovers"),
        killing("tests/postgres/test_crash_points.py::test_killed_at_every_store_call"),
        killing("tests/transactions/test_kills.py::test_killed_at_a_moment"),
        killing("tests/acceptance/test_demo.py::test_the_demo_holds"),
        _STORM,
        _SEEDS,
        _PAIRS,
        _MUTANTS,
    ),
    "P3": (
        killing(f"{_POINTS}::test_killed_while_it_stays_in_memory"),
        killing(f"{_POINTS}::test_killed_under_a_worker"),
        killing("tests/sync/test_kill.py::test_a_plain_agent_killed_anywhere_goes_on"),
        _DEPLOY,
        _SEEDS,
    ),
    "P4": (
        _STORM,
        Trial("tests/processes/test_zombies.py::test_zombies_are_refused_at_their_first_append"),
        Trial("tests/processes/test_races.py::test_of_all_who_race_for_a_run_one_drives_it"),
        Trial("tests/transactions/test_zombies.py::test_stopped_in_the_body"),
        _SEEDS,
        _MUTANTS,
    ),
    "P5": (
        killing("tests/processes/test_takeover.py::test_a_worker_takes_over_within_a_second"),
        killing("tests/processes/test_takeover.py::test_a_fresh_worker_recovers_everybodys_runs"),
        _SEEDS,
    ),
    "P6": (
        _CALLS,
        Trial("tests/order/test_programs.py::test_random_flows_replay_and_go_on"),
        Trial("tests/order/test_order.py::test_a_run_cut_anywhere_goes_on_as_it_could_have"),
        Trial("tests/engine/test_cuts.py::test_a_run_cut_anywhere_goes_on"),
        Trial("tests/replay/test_golden.py::test_golden_journals_replay_on_every_python"),
        _SEEDS,
        _MUTANTS,
    ),
    "P7": (
        _MOMENTS,
        Trial("tests/engine/test_deadline.py::test_past_its_deadline_a_run_is_not_driven_further"),
        Trial("tests/engine/test_deadline.py::test_an_effect_in_doubt_is_settled_first"),
        _PAIRS,
        _MUTANTS,
    ),
    "P8": (
        killing("tests/acceptance/test_bad_input.py::test_a_flow_of_another_version"),
        Trial("tests/acceptance/test_bad_input.py::test_a_database_of_a_newer_schema"),
        _DEPLOY,
    ),
    "P9": (
        killing("tests/retention/test_kill.py::test_a_sweep_that_is_killed_is_gone_on_with"),
        killing("tests/retention/test_kill.py::test_a_fork_that_is_killed_is_made_or_not"),
        Trial(f"{_SIMULATED}::test_forks_have_what_they_share"),
        _SEEDS,
        _MUTANTS,
    ),
    "P10": (
        killing("tests/values/test_killed_reading.py::test_a_killed_run_is_read_without_its_code"),
        Trial("tests/values/test_hostile.py::test_every_case_is_refused_at_once"),
        Trial("tests/values/test_round_trip.py::test_generated_values_come_back_identical"),
    ),
    "P11": (
        killing("tests/seal/test_crashes.py::test_killed_at_store_calls"),
        killing("tests/seal/test_crashes.py::test_killed_at_writes"),
        Trial("tests/seal/test_tampering.py::test_what_was_tampered_with_is_refused"),
        Trial("tests/seal/test_tampering.py::test_no_nonce_comes_twice"),
        Trial(f"{_SIMULATED}::test_sealed_seeds_keep_every_promise"),
        _MUTANTS,
    ),
}
