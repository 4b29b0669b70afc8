"""The default measurements: profiles, suites and studies."""
