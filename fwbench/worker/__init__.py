"""The process boundary: `client` on pytest's side, `process` on the measured one, and `protocol` between them.

`turns` is pytest's side of processes that take turns.
"""
