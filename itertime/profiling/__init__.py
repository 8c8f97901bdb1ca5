"""Operator models: formulas whose coefficients a profile holds, and the fits that compute them from
measurements."""
