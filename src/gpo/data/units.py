"""Conversion between common units of measurement, in any common spelling."""

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
"""Factor and offset that convert a unit to the first unit of its row."""

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
"""Canonical unit by alternative spelling."""

SYMBOLS = {
    **{"degC": "°C", "degF": "°F", "degree": "°", "radian": "rad", "1": ""},
    **dict.fromkeys(("degree_north", "degrees_north", "degree_N", "degrees_N"), "°N"),
    **dict.fromkeys(("degree_east", "degrees_east", "degree_E", "degrees_E"), "°E"),
}
"""Symbols of units in plots and tables."""
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def canonical(units: str) -> str:
    """Returns the canonical spelling: m/s, m s**-1 and m.s^-1 become `m s-1`, factors sorted."""
    text = units.strip()
    if text in SPELLINGS:
        return SPELLINGS[text]
    text = text.replace("**", "").replace("^", "")
    numerator, *denominators = re.split(r"\s*/\s*", text)
    factors = [_factor(part) for part in re.split(r"[\s.·*]+", numerator) if part and part != "1"]
    for denominator in denominators:
        factors += [_inverse(_factor(part)) for part in re.split(r"[\s.·*]+", denominator) if part]
    return " ".join(sorted(factors)) or text


def readable(units: str) -> str:
    """Returns units for display: m s**-1, m/s and m s-1 become m s⁻¹, degC becomes °C.

    Text that is not a product of powers is returned unchanged; dimensionless units are empty.
    """
    text = units.strip()
    if SPELLINGS.get(text, text) in SYMBOLS:
        return SYMBOLS[SPELLINGS.get(text, text)]
    numerator, *denominators = re.split(r"\s*/\s*", text.replace("**", "").replace("^", ""))
    factors = [(part, 1) for part in re.split(r"[\s.·*]+", numerator) if part not in ("", "1")]
    for denominator in denominators:
        factors += [(part, -1) for part in re.split(r"[\s.·*]+", denominator) if part]
    symbols = [_symbol(part, sign) for part, sign in factors]
    return text if None in symbols else " ".join(symbol for symbol in symbols if symbol)


def _symbol(part: str, sign: int) -> str | None:
    """Returns a factor with a superscript power; None if it is not a name with a power."""
    match = re.fullmatch(r"([^\W\d_]+|%|°)([+-]?\d+)?", part)
    if match is None:
        return None
    name = SPELLINGS.get(match[1], match[1])
    power = sign * int(match[2] or 1)
    return SYMBOLS.get(name, name) + ("" if power == 1 else str(power).translate(SUPERSCRIPTS))


def conversion(source: str, target: str) -> tuple[float, float] | None:
    """Returns factor and offset from one unit to another; None if they cannot be converted."""
    source, target = canonical(source), canonical(target)
    if source == target:
        return 1.0, 0.0
    for row in TABLE.values():
        if source in row and target in row:
            (factor, offset), (target_factor, target_offset) = row[source], row[target]
            return factor / target_factor, (offset - target_offset) / target_factor
    return None


def _factor(part: str) -> str:
    """Returns a factor in its canonical spelling, with its exponent."""
    match = re.fullmatch(r"(.*?)([+-]?\d+)?", part)
    assert match is not None
    name, power = match[1], match[2] or "1"
    name = SPELLINGS.get(name, name)
    return name + ("" if int(power) == 1 else str(int(power)))


def _inverse(factor: str) -> str:
    match = re.fullmatch(r"(.*?)(-?\d+)?", factor)
    assert match is not None
    power = -int(match[2] or 1)
    return match[1] + ("" if power == 1 else str(power))
