"""Configure Sphinx for the staged pages."""

project = "gpuinstall"
html_title = "gpuinstall"
extensions = ["myst_parser"]
myst_heading_anchors = 4

html_theme = "furo"
templates_path = ["templates"]
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "menu.html",
        "sidebar/scroll-end.html",
    ]
}
html_copy_source = False
html_use_index = False
html_show_copyright = False
html_show_search_summary = False  # browsers block reading other local pages
highlight_language = "none"
