"""No framework at all: prices the harness itself."""
