"""The process boundary: `client` on pytest's side; `start`, then `server` and `run` on the measured one.

`turns` takes the place of both in a duet, and `journal` outlives all.
"""
