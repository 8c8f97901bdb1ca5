"""Operator models: formulas whose coefficients a profile holds, and the programs that fit them to measurements."""
