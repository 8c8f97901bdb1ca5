"""The commands of `clustersim`, one module each; what is slow to import waits until a command runs."""
