"""What is measured when nobody says: profiles, suites and studies."""
