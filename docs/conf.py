"""The documents as one site, by Sphinx: `make docs` builds it into build/docs, and fails where a link leads nowhere."""

project = "fwbench"
extensions = ["myst_parser"]
# Read in the repository alone.
exclude_patterns = ["evidence/twins/*", "numpy-lane/*"]
html_theme = "furo"
html_title = project
# Links lead to headings, as on GitHub.
myst_heading_anchors = 4
