"""What is measured by default: profiles, suites and studies."""
