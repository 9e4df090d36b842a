"use strict";
// The embedded document contains all results. This script only displays them.
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const form = at("questions");
const NEWEST = Infinity;

function node(tag, parts, attributes = {}) {
  const made = document.createElement(tag);
  made.append(...[parts].flat());
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/* GPU */
const wordsOf = (text) => text.toLowerCase().replace(/(\d) ?gi?b\b/g, "$1gb").match(/[\p{L}\p{N}]+/gu) || [];
const lettersOf = (text) => wordsOf(text).join("");
const cards = data.kinds.flatMap((kind, number) => kind.cards.map((name) => {
  const label = kind.code ? `${name} (${kind.code})` : name;
  return { name, label, kind: number, letters: lettersOf(label), words: wordsOf(label) };
}));

// Return the GPUs whose names contain every typed word. Whole words come first, then the shortest name.
function search(query) {
  const exact = cards.filter((card) => card.label === query);
  if (exact.length) return exact;
  const words = wordsOf(query).filter((word) => word !== "nvidia");
  if (!words.length) return [];
  const isMobile = (word) => word.length > 1 && ["laptop", "notebook"].some((name) => name.startsWith(word));
  const has = (card, word) => card.letters.includes(word) || (isMobile(word) && card.letters.includes("mobile"));
  const length = (card) => card.letters.length + (words.every((word) => card.words.includes(word)) ? 0 : 100);
  const found = cards.filter((card) => words.every((word) => has(card, word)));
  return found.sort((one, other) => length(one) - length(other));
}

/* Driver */
// Return the driver version from a version, the first lines of nvidia-smi, or Windows' format (32.0.15.6094).
function driverOf(text) {
  const version = /(?:Driver|KMD) Version: *([\d.]+)/.exec(text)?.[1] || text.trim().replace(/^[rv]/i, "");
  const windows = /^\d+\.\d+\.\d+(\d)\.(\d\d)(\d\d)$/.exec(version);
  const plain = windows ? `${windows[1]}${windows[2]}.${windows[3]}` : version;
  return /^\d{3,4}(\.\d{1,4}){0,3}$/.test(plain) ? plain : null;
}

// Compare two releases. A branch stands for its latest release.
function isFrom(first, version) {
  const parts = version.split(".").map(Number);
  if (parts.length === 1) parts.push(NEWEST);
  const differs = first.findIndex((part, place) => part !== (parts[place] ?? -1));
  return differs < 0 || first[differs] < (parts[differs] ?? -1);
}

const releaseOf = (parts) => (parts[1] ? parts.join(".").replace(/\.(\d)(?=\.|$)/g, ".0$1") : String(parts[0]));

/* Result */
function show(answer, card, driver) {
  const filled = (text) => text.replaceAll("{card}", card.name).replaceAll("{driver}", driver);
  const paragraphs = (texts, attributes) => texts.map((text) => node("p", filled(text), attributes));
  if (!answer.requirements.length) {
    const steps = answer.notes.map((text) => node("li", filled(text)));
    at("answer").className = "scripted bad";
    at("answer").replaceChildren(node("h2", answer.title), ...paragraphs(answer.reasons),
      ...(steps.length ? [node("h3", "What to do"), node("ul", steps)] : []));
    return;
  }
  const pins = answer.requirements.join(" ");
  const packages = data.packages[form.elements.with.value].slice(1).join(" ");
  const commands = [
    ["With gpuinstall, which detects this machine", `gpuinstall install torch ${packages}`],
    [`With uv, in an environment with Python ${answer.python}`,
      `uv pip install ${pins}${answer.index_url && ` --index ${answer.index_url}`}`],
    [`With pip, in an environment with Python ${answer.python}`,
      `pip install ${pins}${answer.index_url && ` --index-url ${answer.index_url}`}`],
  ];
  at("answer").className = "scripted good";
  at("answer").replaceChildren(node("h2", `torch ${answer.title}`), ...paragraphs(answer.reasons),
    ...paragraphs(answer.notes, { class: "warning" }),
    ...commands.flatMap(([label, command]) => [node("p", `${label}:`), node("pre", node("code", command))]),
    node("p", node("small", `Source: ${answer.source}`)));
}

// Show the build for each range of drivers.
function showByDriver(ranges, choice) {
  const rows = [];
  for (const [first, answers] of ranges) {
    const { title } = data.answers[answers[choice]];
    if (rows.at(-1)?.title !== title) rows.push({ from: first[0] ? `from ${releaseOf(first)}` : "older", title });
  }
  const lines = rows.map(({ from, title }) => node("tr", [node("th", from, { scope: "row" }), node("td", title)]));
  const heads = ["Driver", "Latest build"].map((text) => node("th", text, { scope: "col" }));
  at("answer").className = "scripted";
  at("answer").replaceChildren(node("h2", "The build depends on the driver"),
    node("div", node("table", [node("thead", node("tr", heads)), node("tbody", lines)]), { class: "wide" }));
}

function ask(text) {
  at("answer").className = "scripted";
  at("answer").replaceChildren(node("p", text));
}

function render() {
  const query = at("gpu").value.trim();
  const [card, ...others] = search(query);
  const isAmbiguous = others.some((other) => other.name === card.name);
  const driver = driverOf(at("driver").value);
  const system = card && data.kinds[card.kind].os; // Apple's GPUs are only in Macs
  if (system) form.elements.os.value = system;
  const platform = data.platforms.find((each) => each.key === form.elements.os.value);
  const ranges = card && platform.ranges[card.kind];
  const needsDriver = card && ranges[0][0] !== null;

  at("gpu-help").textContent = card && !isAmbiguous ? card.label : query ? "" : "Enter a part of the name.";
  if (query && !card) at("gpu-help").textContent = "No GPU with this name is in the catalog.";
  if (isAmbiguous) at("gpu-help").textContent = "Several chips have this name. Select one.";
  at("others").replaceChildren(...(isAmbiguous ? [card, ...others] : others).slice(0, 12).map((other) => {
    const button = node("button", other.label, { type: "button" });
    button.addEventListener("click", () => { at("gpu").value = other.label; changed(); at("gpu").focus(); });
    return button;
  }));
  at("driver-help").textContent = "nvidia-smi prints the “Driver Version”. Leave this empty to see all drivers.";
  if (at("driver").value && !driver) at("driver-help").textContent = "This is not a driver version such as 580.95.05.";
  if (card && !needsDriver) at("driver-help").textContent = "This GPU needs no driver version.";

  if (!card || isAmbiguous) ask("Enter your GPU to see which build runs on it.");
  else if (needsDriver && !driver) showByDriver(ranges, form.elements.with.value);
  else {
    const range = needsDriver ? ranges.findLast(([first]) => isFrom(first, driver)) : ranges[0];
    show(data.answers[range[1][form.elements.with.value]], card, driver);
  }
}

/* The URL contains all choices. */
function changed() {
  render();
  const words = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
  history.replaceState(null, "", `#${words}`);
}

function readAddress() {
  for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
    if (form.elements[name]) form.elements[name].value = value.slice(0, 100);
  }
  // A value that is not in a list would leave the list without a selection.
  for (const list of form.querySelectorAll("select")) list.selectedIndex = Math.max(list.selectedIndex, 0);
  render();
}

at("os").append(...data.platforms.map(({ key, name }) => node("option", name, { value: key })));
at("with").append(...data.packages.map((names, number) => node("option", names.join(" + "), { value: number })));
form.addEventListener("input", changed);
form.addEventListener("submit", (event) => event.preventDefault());
addEventListener("hashchange", readAddress);
for (const part of document.querySelectorAll(".scripted")) part.hidden = false;
readAddress();
