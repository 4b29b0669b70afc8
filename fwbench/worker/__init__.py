"""The process boundary: `client` on pytest's side, `server` and `run` on the measured one, `journal` outlives both."""
