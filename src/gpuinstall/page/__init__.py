"""The selector page: what ``choose`` says of every kind of GPU, in one file to open or to host."""

from gpuinstall.page.document import selector_page

__all__ = ["selector_page"]
