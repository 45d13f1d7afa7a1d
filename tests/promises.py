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


class Defect(NamedTuple):
    """Something that once broke, and a test that holds it."""

    defect: str
    test: str
    #: How the test was seen to fail.
    seen: str


#: It failed on the source before the mend.
_BEFORE = "on the code before"
#: It names what that code lacks, so the mended code was broken instead.
_BROKEN = "on broken code"


def _by_mutant(name: str) -> str:
    """It can't run on the source before the mend; this mutant dies in `make test`."""
    return f"by mutant \u201c{name}\u201d"


_MAIL, _HINTS = "tests/mail/test_forged_mail.py", "tests/workers/hint_rules.py"
DEFECTS: tuple[Defect, ...] = (
    Defect("forged mail", f"{_MAIL}::test_a_sealed_run_takes_no_plain_mail", _BEFORE),
    Defect(
        "forged mail, after the mend",
        "tests/mutants/test_mutants.py::test_the_mutant_dies",
        _by_mutant("sealed mail check off"),
    ),
    Defect(
        "a letter that is put back",
        f"{_MAIL}::test_a_letter_that_was_read_does_not_count_again",
        _BEFORE,
    ),
    Defect(
        "a letter of an earlier chapter that is put back",
        f"{_MAIL}::test_a_letter_of_an_earlier_chapter_does_not_count_again",
        _BEFORE,
    ),
    Defect(
        "a flipped bit in mail",
        "tests/mail/test_damaged_mail.py::test_a_flipped_bit_pays_nothing",
        _by_mutant("mail check off"),
    ),
    Defect(
        "news of a child that can't be read",
        "tests/mail/test_lost_news.py::test_a_parent_goes_on_without_readable_news",
        _BEFORE,
    ),
    Defect(
        "a letter of an unknown kind",
        "tests/mail/test_damaged_mail.py::test_a_whole_letter_of_an_unknown_kind_is_kept_aside",
        _BEFORE,
    ),
    Defect(
        "an answer to another question",
        "tests/mutants/test_mutants.py::test_the_mutant_dies",
        _by_mutant("text not compared"),
    ),
    Defect(
        "a live run deleted by its header",
        f"{_HINTS}::test_a_live_run_whose_header_says_completed_is_kept",
        f"{_BEFORE}, {_by_mutant('header believed')}",
    ),
    Defect(
        "a head beside the end of its journal",
        f"{_HINTS}::test_a_head_beside_the_end_of_its_journal_is_told",
        _BEFORE,
    ),
    Defect(
        "values deleted by a row's family",
        f"{_HINTS}::test_values_of_a_child_whose_row_names_another_family_are_kept",
        _BEFORE,
    ),
    Defect(
        "a run that is over by its header",
        f"{_HINTS}::test_whether_a_run_is_over_is_told_by_its_journal",
        _BEFORE,
    ),
    Defect(
        "a run that a damaged index lost",
        "tests/stores/test_sqlite_index.py::test_a_run_that_its_index_lost_does_not_begin_again",
        _BEFORE,
    ),
    Defect(
        "commits behind a damaged frame of SQLite's log",
        "tests/stores/test_sqlite_log_damage.py::test_commits_behind_a_damaged_frame_are_told",
        _BEFORE,
    ),
    Defect(
        "texts of errors in logs of a sealed store",
        "tests/seal/test_quiet_logs.py::test_errors_of_users_are_logged_without_their_texts",
        _BEFORE,
    ),
    Defect(
        "a repeated attempt recorded as not happened",
        "tests/unit/test_engine_doubts.py"
        "::test_an_attempt_that_is_repeated_unasked_is_recorded_as_unknown",
        "not seen: older records lack the field",
    ),
    Defect(
        "sleeps by a wrong clock",
        "tests/mutants/test_mutants.py::test_the_mutant_dies",
        _by_mutant("skew ignored"),
    ),
    Defect(
        "effects repeated after a failover that loses",
        "tests/postgres/test_fleet.py::test_nothing_that_was_lost_is_done_again",
        _BROKEN,
    ),
    Defect(
        "a commit acknowledged without its standby",
        "tests/postgres/test_settings.py::test_a_standby_that_is_gone_is_not_done_without",
        _BEFORE,
    ),
    Defect(
        "a body's settings that reach another",
        "tests/postgres/test_settings.py::test_no_setting_of_a_body_reaches_another",
        _BEFORE,
    ),
    Defect(
        "retention slower with each tombstone",
        "tests/postgres/test_retention.py"
        "::test_the_rate_does_not_depend_on_the_number_of_tombstones",
        _BROKEN,
    ),
    Defect(
        "a sweep that takes most of a slow store's time",
        "tests/postgres/test_retention.py::test_a_slow_portion_is_followed_by_a_long_rest",
        _BEFORE,
    ),
    Defect(
        "a waiting run quarantined by its workers' deaths",
        "tests/workers/test_waiting_deaths.py"
        "::test_a_run_that_was_only_claimed_is_never_quarantined",
        _BROKEN,
    ),
    Defect(
        "bodies that outlive their claim",
        "tests/queues/test_processes.py::test_a_body_ends_soon_after_its_claim",
        _BEFORE,
    ),
    Defect(
        "a retried run that cannot be cancelled",
        "tests/engine/test_found_retry.py"
        "::test_an_effect_that_a_retry_asks_for_otherwise_is_shown_as_a_mismatch",
        _BEFORE,
    ),
    Defect(
        "a child that a retry calls again, compared with nothing",
        "tests/engine/test_found_retry.py::test_a_child_that_a_retry_calls_again_is_intended_again",
        _BEFORE,
    ),
)
