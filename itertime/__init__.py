"""Iteration time of 3D-parallel training, from measured operator and collective profiles."""
