"""The documentation as a site: `make docs` writes it into site/, where index.html opens and is searched without a server."""

from cirf import __version__

project = "cirf"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
default_role = "literal"  # `name` in a docstring
myst_heading_anchors = 4  # the anchors of headings are those of code hosts
html_theme = "furo"
html_title = f"cirf {release}"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
