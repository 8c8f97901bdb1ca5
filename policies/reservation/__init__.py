"""Reservations before a deadline."""
