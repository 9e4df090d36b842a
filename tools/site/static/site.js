"use strict";
// The keyboard reaches what scrolls sideways, and a screen reader tells the two side columns apart.
addEventListener("load", () => {
  const wide = [...document.querySelectorAll("pre, .table-wrapper")].filter((part) => part.scrollWidth > part.clientWidth);
  wide.forEach((part) => { part.tabIndex = 0; });
  document.querySelector(".sidebar-drawer").setAttribute("aria-label", "Menu");
});
