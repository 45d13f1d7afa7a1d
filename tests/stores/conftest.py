"""The suite's asserts shall explain themselves like those of any test."""

import pytest

for _topic in ("journals", "mail", "leases", "finding"):
    pytest.register_assert_rewrite(f"outlive.testing.store_suite_{_topic}")
