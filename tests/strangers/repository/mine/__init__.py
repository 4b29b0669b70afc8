"""What the user of this repository has written: networks, and builders of libraries' networks."""
