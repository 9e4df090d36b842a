"""The selector page: what ``choose`` says of every kind of GPU, in one file that anyone can open or host."""

from gpuinstall.page.html import selector_page

__all__ = ["selector_page"]
