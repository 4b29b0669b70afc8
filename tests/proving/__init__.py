"""What proves the suite's own networks to its makers: planted mistakes, float32 results, steps over several devices."""
