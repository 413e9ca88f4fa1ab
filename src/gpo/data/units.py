"""Units of measurement that are converted into each other: a small table, in any common spelling."""

import re

TABLE: dict[str, dict[str, tuple[float, float]]] = {
    "temperature": {
        "K": (1, 0),
        "degC": (1, 273.15),
        "degF": (5 / 9, 459.67 * 5 / 9),
    },
    "length": {"m": (1, 0), "km": (1e3, 0), "cm": (1e-2, 0), "mm": (1e-3, 0), "ft": (0.3048, 0)},
    "pressure": {
        "Pa": (1, 0),
        "hPa": (1e2, 0),
        "kPa": (1e3, 0),
        "dbar": (1e4, 0),
        "bar": (1e5, 0),
    },
    "speed": {
        "m s-1": (1, 0),
        "cm s-1": (1e-2, 0),
        "km s-1": (1e3, 0),
        "h-1 km": (1 / 3.6, 0),
        "kt": (1852 / 3600, 0),
        "h-1 mm": (1e-3 / 3600, 0),
        "d-1 mm": (1e-3 / 86400, 0),
        "d-1 m": (1 / 86400, 0),
    },
    "fraction": {"1": (1, 0), "%": (1e-2, 0)},
    "mass fraction": {"kg kg-1": (1, 0), "g kg-1": (1e-3, 0), "kg-1 mg": (1e-6, 0)},
    "density": {"kg m-3": (1, 0), "cm-3 g": (1e3, 0), "g m-3": (1e-3, 0)},
    "energy per area": {"J m-2": (1, 0), "kJ m-2": (1e3, 0), "MJ m-2": (1e6, 0)},
    "power per area": {"W m-2": (1, 0), "kW m-2": (1e3, 0)},
    "geopotential": {"m2 s-2": (1, 0), "J kg-1": (1, 0)},
    "angle": {"degree": (1, 0), "radian": (57.29577951308232, 0)},
    "duration": {"s": (1, 0), "min": (60, 0), "h": (3600, 0), "d": (86400, 0)},
}
"""Factor and offset that turn a unit into the first of its row."""

SPELLINGS = {
    **dict.fromkeys(("kelvin", "Kelvin", "degK", "deg_K"), "K"),
    **dict.fromkeys(("°C", "C", "celsius", "Celsius", "deg_C", "degreeC", "degreesC"), "degC"),
    **dict.fromkeys(("degree_C", "degrees_C", "degree_Celsius", "degrees_Celsius"), "degC"),
    **dict.fromkeys(("degree_celsius", "degrees_celsius", "degc", "deg_c"), "degC"),
    **dict.fromkeys(("°F", "F", "fahrenheit", "degree_Fahrenheit", "degrees_Fahrenheit"), "degF"),
    **dict.fromkeys(("metre", "metres", "meter", "meters"), "m"),
    **dict.fromkeys(("kilometre", "kilometres", "kilometer", "kilometers"), "km"),
    **dict.fromkeys(("millimetre", "millimetres", "millimeter", "millimeters"), "mm"),
    **dict.fromkeys(("foot", "feet"), "ft"),
    **dict.fromkeys(("pascal", "Pascal", "pascals"), "Pa"),
    **dict.fromkeys(("mbar", "mb", "millibar", "millibars", "hectopascal"), "hPa"),
    **dict.fromkeys(("knot", "knots", "kn", "kts"), "kt"),
    **dict.fromkeys(("percent", "pct"), "%"),
    **dict.fromkeys(("dimensionless", "fraction"), "1"),
    **dict.fromkeys(("degrees", "deg"), "degree"),
    **dict.fromkeys(("radians", "rad"), "radian"),
    **dict.fromkeys(("sec", "second", "seconds"), "s"),
    **dict.fromkeys(("minute", "minutes"), "min"),
    **dict.fromkeys(("hr", "hour", "hours"), "h"),
    **dict.fromkeys(("day", "days"), "d"),
}
"""Other names of a unit."""

SYMBOLS = {
    **{"degC": "°C", "degF": "°F", "degree": "°", "radian": "rad", "1": ""},
    **dict.fromkeys(("degree_north", "degrees_north", "degree_N", "degrees_N"), "°N"),
    **dict.fromkeys(("degree_east", "degrees_east", "degree_E", "degrees_E"), "°E"),
}
"""How people write some units."""
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
"""Digits of powers."""


def canonical(units: str) -> str:
    """Returns one spelling for all: m/s, m s**-1 and m.s^-1 are `m s-1`; factors are sorted."""
    text = units.strip()
    if text in SPELLINGS:
        return SPELLINGS[text]
    text = text.replace("**", "").replace("^", "")
    above, *below = re.split(r"\s*/\s*", text)
    factors = [_factor(part) for part in re.split(r"[\s.·*]+", above) if part and part != "1"]
    for denominator in below:
        factors += [_inverse(_factor(part)) for part in re.split(r"[\s.·*]+", denominator) if part]
    return " ".join(sorted(factors)) or text


def readable(units: str) -> str:
    """Returns units as people write them: m s**-1, m/s and m s-1 are m s⁻¹, degC is °C.

    What is no product of powers is returned as it is; what is dimensionless is empty.
    """
    text = units.strip()
    if SPELLINGS.get(text, text) in SYMBOLS:
        return SYMBOLS[SPELLINGS.get(text, text)]
    above, *below = re.split(r"\s*/\s*", text.replace("**", "").replace("^", ""))
    factors = [(part, 1) for part in re.split(r"[\s.·*]+", above) if part not in ("", "1")]
    factors += [(part, -1) for place in below for part in re.split(r"[\s.·*]+", place) if part]
    shown = [_shown(part, sign) for part, sign in factors]
    return text if None in shown else " ".join(part for part in shown if part)


def _shown(part: str, sign: int) -> str | None:
    """Returns a factor with its power raised; None where it is no name with a power."""
    found = re.fullmatch(r"([^\W\d_]+|%|°)([+-]?\d+)?", part)
    if found is None:
        return None
    name = SPELLINGS.get(found[1], found[1])
    power = sign * int(found[2] or 1)
    return SYMBOLS.get(name, name) + ("" if power == 1 else str(power).translate(RAISED))


def conversion(have: str, want: str) -> tuple[float, float] | None:
    """Returns factor and offset from one unit to another; nothing where the table has no way."""
    have, want = canonical(have), canonical(want)
    if have == want:
        return 1.0, 0.0
    for row in TABLE.values():
        if have in row and want in row:
            (factor, offset), (other, base) = row[have], row[want]
            return factor / other, (offset - base) / other
    return None


def _factor(part: str) -> str:
    """Returns one factor in its usual spelling, with its exponent."""
    found = re.fullmatch(r"(.*?)([+-]?\d+)?", part)
    assert found is not None
    name, power = found[1], found[2] or "1"
    name = SPELLINGS.get(name, name)
    return name + ("" if int(power) == 1 else str(int(power)))


def _inverse(factor: str) -> str:
    found = re.fullmatch(r"(.*?)(-?\d+)?", factor)
    assert found is not None
    power = -int(found[2] or 1)
    return found[1] + ("" if power == 1 else str(power))
