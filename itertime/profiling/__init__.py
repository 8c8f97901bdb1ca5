"""Measuring a GPU's operators, and fitting the coefficients of a profile to measurements."""
