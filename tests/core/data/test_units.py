"""Units for display."""

import pytest

from gpo.data.units import readable


@pytest.mark.parametrize(
    ("units", "shown"),
    [
        ("m s**-1", "m s⁻¹"),
        ("m/s", "m s⁻¹"),
        ("m.s^-1", "m s⁻¹"),
        ("1/s", "s⁻¹"),
        ("m**2 s**-2", "m² s⁻²"),
        ("kg m-2", "kg m⁻²"),
        ("mm/day", "mm d⁻¹"),
        ("degC", "°C"),
        ("degrees_north", "°N"),
        ("K", "K"),
        ("1", ""),
        ("", ""),
        ("(0 - 1)", "(0 - 1)"),
        ("psu (1e-3)", "psu (1e-3)"),
    ],
)
def test_powers_are_superscripts_and_other_text_is_unchanged(units, shown):
    assert readable(units) == shown
