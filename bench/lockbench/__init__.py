"""The benchmark's runner: stdlib only."""
