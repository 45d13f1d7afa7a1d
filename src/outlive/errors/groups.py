"""The root of all errors, and the three groups that say whose fault it is."""

from __future__ import annotations


class OutliveError(Exception):
    """Something Outlive refuses or could not do."""

    exit_code = 1


class UsageError(OutliveError):
    """The caller asked for something that can't be; the message says what to do instead."""

    exit_code = 2


class RunError(OutliveError):
    """A run or a step of it ended badly."""


class StoreError(OutliveError):
    """The store or its data is not as it should be."""

    exit_code = 3
