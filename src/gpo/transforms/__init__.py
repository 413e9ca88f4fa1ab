"""Waves and bases along an axis; analysis and synthesis with them on any sites."""
