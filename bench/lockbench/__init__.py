"""The benchmark's runner. It uses the standard library only."""
