"""No framework at all: measures the harness itself."""
