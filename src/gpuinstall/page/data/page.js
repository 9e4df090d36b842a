"use strict";
// The answers are in the table below; nothing here decides what runs where.
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const LONGEST = 200000;
const MODES = ["unknown", "typed", "newest", "none"];
const PACKAGES = data.packages.map((names) => names.join(" + "));
const PYTHONS = data.pythons.map((python) => python || "the one that suits");

/* Names of cards. */
const brands = new Set(data.brands);
const form = new RegExp(`^(?:${data.form})$`);
const isNvidias = (kind) => /^\d/.test(data.kinds[kind]);
const chipOf = (kind) => isNvidias(kind) ? `sm_${data.kinds[kind].replace(".", "")}` : data.kinds[kind];
const spaced = (name) => (name.toLowerCase().match(/[\p{L}\p{N}]+/gu) || []).join(" ")
  .replace(/(\d) ?gi?b\b/g, "$1gb").replace(/\bmax q\b/g, "maxq");
const wordsOf = (text) => text.split(" ").filter((word) => word && !brands.has(word));
const bare = (words) => words.filter((word) => !form.test(word));
const cards = [...document.querySelectorAll("#names dd")].map((names) => names.textContent.split(", "));
const listed = cards.flatMap((names, kind) => names.map((name) => {
  const text = spaced(name), words = wordsOf(text);
  return { name, kind, text, words, full: words.join(""), model: bare(words).join(""), squeezed: text.replaceAll(" ", "") };
}));

function search(query) {
  const said = spaced(query).split(" ").filter(Boolean);
  const mobile = (word) => word.length > 1 && ["laptop", "notebook"].some((name) => name.startsWith(word));
  const readings = [said, said.map((word) => mobile(word) ? "mobile" : word), bare(said)];
  return readings.map(matching).find((cards) => cards.length) || [];
}

function matching(words) {
  if (!words.length) return [];
  const joined = words.join(""), own = wordsOf(words.join(" ")).join("");
  const rank = (card) => card.full === own ? 0 : card.model === own ? 1 : card.full.startsWith(own) ? 2 : 3;
  return listed.filter((card) => card.squeezed.includes(joined) || words.every((word) => card.squeezed.includes(word)))
    .map((card) => [rank(card), card]).sort((one, other) => one[0] - other[0]).map((pair) => pair[1]);
}

// All cards that a whole name can mean; exactly, as the same model in another form, or as part of longer names.
function meant(name) {
  const cut = /(\.{3}|…)\s*$/.test(name);
  const text = spaced(name.replace(/\sMIG\b.*$/, "")), words = wordsOf(text);
  const branded = text !== words.join(" "), all = branded ? listed.filter((card) => isNvidias(card.kind)) : listed;
  if (cut) {
    const start = text.replaceAll(" ", ""), own = words.join("");
    return all.filter((card) => card.squeezed.startsWith(start) || (own && card.full.startsWith(own)));
  }
  const full = words.join(""), model = bare(words).join("");
  const exact = all.filter((card) => card.full === full);
  const same = exact.length ? exact : all.filter((card) => model.length > 1 && card.model === model);
  if (same.length || !/\d/.test(model)) return same;
  return all.filter((card) => words.every((word) => card.words.includes(word)));
}

// A card by the name in an address or in what was pasted; its kind is known where all that it can mean are of one.
function cardOf(name, kind) {
  const exact = data.kinds.findIndex((_, each) => chipOf(each) === name.trim().toLowerCase());
  if (exact >= 0 || /^sm_\d+$/i.test(name.trim())) kind = exact;
  const kinds = kind === undefined ? [...new Set(meant(name).map((card) => card.kind))] : [kind];
  return kinds.length === 1 && kinds[0] >= 0 ? { name: name.replace(/^NVIDIA\s+/i, "").slice(0, 80), kind: kinds[0] } : null;
}

/* The table. */
const unpacked = (text) => (text.match(/.{3}/g) || []).map((digits) => parseInt(digits, 36));
const platformOf = (key) => data.platforms.find((each) => each.key === key) || data.platforms[0];
const compare = (one, other) => {
  for (let i = 0; i < Math.max(one.length, other.length); i++) {
    const difference = (i < one.length ? one[i] : -1) - (i < other.length ? other[i] : -1);
    if (difference) return difference;
  }
  return 0;
};

function versionOf(text) {
  const said = text.trim().toLowerCase().replace(/^(nvidia[- ]?)?(driver[- ]?)?[rv]?/, "").replace(/-\S*$/, "");
  const windows = /^\d{1,2}\.\d{1,2}\.\d{1,2}(\d)\.(\d{2})(\d{2})$/.exec(said);
  const version = windows ? `${windows[1]}${windows[2]}.${windows[3]}` : said;
  return /^\d{3,4}(\.\d{1,4}){0,3}$/.test(version) ? version : null;
}

function spanOf(platform, version) {
  const parts = version.split(".").map(Number);
  if (parts.length === 1) parts.push(Infinity);
  let found = 0;
  platform.spans.forEach((first, number) => { if (compare(first, parts) <= 0) found = number; });
  return found;
}

function classOf(platform, kinds, span) {
  const wanted = kinds.join(",");
  if (!platform.spans.length) return platform.without[wanted] ?? platform.without[""];
  if (span === null || !platform.rows[wanted]) return platform.without[wanted];
  let rest = span;
  for (const [number, count] of platform.rows[wanted]) {
    if (rest < count) return number;
    rest -= count;
  }
  return undefined;
}

function answerOf(number, python, packages) {
  const answers = number === undefined ? [] : unpacked(data.classes[number]);
  const position = python * data.packages.length + packages;
  if (position >= answers.length) return null;
  const [outcome, build, reasons, notes, passedOver] = unpacked(data.answers[answers[position]])
    .map((part) => data.parts[part].map((text) => data.texts[text]));
  return { outcome, build, reasons, notes, passedOver };
}

/* What is asked: the whole of it stands in the address. */
let state = { cards: [], mode: "unknown", driver: "", os: data.platforms[0].key, python: 0, packages: 0 };

const homeOf = (cards) => cards.map((card) => data.homes[card.kind]).find(Boolean) || data.platforms[0].key;
const kindsOf = () => [...new Set(state.cards.map((card) => card.kind))].sort((one, other) => one - other);

function written() {
  const words = new URLSearchParams();
  state.cards.forEach((card) => words.append("gpu", meant(card.name).some((each) => each.kind !== card.kind) || !meant(card.name).length
    ? `${card.name}=${data.kinds[card.kind]}` : card.name));
  if (state.mode !== "unknown") words.set("driver", state.mode === "typed" ? state.driver : state.mode);
  if (state.os !== homeOf(state.cards)) words.set("os", state.os);
  if (state.python) words.set("python", data.pythons[state.python]);
  if (state.packages) words.set("with", data.packages[state.packages].slice(1).join(","));
  return words.toString();
}

function readAddress(text = location.hash.slice(1)) {
  const words = new URLSearchParams(text);
  const cards = words.getAll("gpu").slice(0, 64).map((text) => {
    const [name, kind] = text.split("=");
    return kind ? cardOf(name, data.kinds.indexOf(kind)) : cardOf(name);
  }).filter(Boolean);
  const driver = words.get("driver") || "unknown", typed = !MODES.includes(driver) || driver === "typed";
  const packages = data.packages.findIndex((names) => names.slice(1).join(",") === (words.get("with") || ""));
  state = {
    cards,
    mode: typed ? "typed" : driver,
    driver: typed && driver !== "typed" ? driver.slice(0, 40) : "",
    os: platformOf(words.get("os") || homeOf(cards)).key,
    python: Math.max(0, data.pythons.indexOf(words.get("python"))),
    packages: Math.max(0, packages),
  };
}

function changed(change) {
  Object.assign(state, change);
  const hash = written();
  if ("driver" in change && Object.keys(change).length === 1) history.replaceState(null, "", `#${hash}`);
  else if (hash !== location.hash.slice(1)) history.pushState(null, "", `#${hash}`);
  render();
}

/* What is shown; texts become text nodes, never markup. */
function node(name, content, attributes) {
  const made = document.createElement(name);
  for (const each of [content ?? []].flat()) made.append(each);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  return made;
}

function newest(platform, kinds) {
  for (let span = platform.spans.length - 2; span >= 0; span--) {
    const answer = answerOf(classOf(platform, kinds, span), state.python, state.packages);
    if (answer && answer.build.length && answer.outcome[0] === "ok") return span;
  }
  return null;
}

const release = (parts) => parts.map((part, place) => place && part < 10 ? `0${part}` : part).join(".");
const lastOf = (platform, span) => {
  const next = platform.spans[span + 1];
  return next ? `before ${release(next)}` : "and newer";
};

function render() {
  const platform = platformOf(state.os), kinds = kindsOf();
  at("mode").value = state.mode;
  at("os").value = state.os;
  at("python").value = String(state.python);
  at("packages").value = String(state.packages);
  at("driver").hidden = state.mode !== "typed";
  if (at("driver").value !== state.driver) at("driver").value = state.driver;
  at("cards").replaceChildren(...state.cards.map((card, index) => {
    const named = `${chipOf(card.kind)} ${data.generations[card.kind]}`;
    const button = node("button", [card.name, " ", node("small", named), node("span", " ×", { "aria-hidden": "true" })],
      { type: "button", "aria-label": `Remove ${card.name} ${named}` });
    button.addEventListener("click", () => { changed({ cards: state.cards.filter((_, each) => each !== index) }); at("search").focus(); });
    return node("li", button);
  }));
  const version = state.mode === "typed" ? versionOf(state.driver) : null;
  const best = state.mode === "newest" && kinds.length ? newest(platform, kinds) : null;
  at("driver-help").textContent = driverHelp(platform, version, best, kinds);
  const span = version ? spanOf(platform, version) : best;
  const shown = best === null ? version : release(platform.spans[best]);
  const known = span !== null || state.mode === "none" || !platform.spans.length || !kinds.some(isNvidias);
  if (!kinds.length && state.mode !== "none" && platform.spans.length) at("answer").replaceChildren(node("p", "Add your card to see which build runs on it. For a machine without one, choose “none is installed” for the driver."));
  else if (!known) at("answer").replaceChildren(...overview(platform, kinds));
  else at("answer").replaceChildren(...answered(answerOf(classOf(platform, kinds, span), state.python, state.packages), platform, span, shown));
  if (!at("answer").querySelector("h2")) at("answer").className = "scripted";
}

function driverHelp(platform, version, best, kinds) {
  if (!platform.spans.length) return "macOS has no NVIDIA driver to ask for.";
  if (kinds.length && !kinds.some(isNvidias)) return "The driver's version does not matter for these cards.";
  if (state.mode === "unknown") return "nvidia-smi shows it as “Driver Version” (or “KMD Version”); on Windows also the NVIDIA app. You can paste its output below.";
  if (state.mode === "typed" && !state.driver) return "The “Driver Version” shown by nvidia-smi, or the branch alone: 580.";
  if (state.mode === "typed" && !version) return "This is not a driver version such as 580.95.05 (the CUDA version is another number).";
  if (state.mode === "newest" && best !== null) return `The newest branch that supports these cards and runs a build on all of them: ${release(platform.spans[best])}.`;
  if (state.mode === "newest" && kinds.length) return "No driver runs a build on all of these cards.";
  return "";
}

function fill(text, driver, platform, span) {
  const kinds = kindsOf();
  const of = (number) => state.cards.map((card, index) => [card, card.index ?? index]).filter(([card]) => card.kind === kinds[number]);
  return text.replace(/\{(#?)(\d|driver|cuda|chip)\}/g, (_, hash, what) => {
    if (what === "driver") return driver || "";
    if (what === "chip") return chipOf(kinds[0]);
    if (what === "cuda") return span === null ? "" : platform.cuda[span] || "";
    if (hash) return of(Number(what)).map(([, index]) => index).join(",");
    return [...new Set(of(Number(what)).map(([card]) => card.name))].join(" and ");
  });
}

const OPTIONS = { windows: ["--os", "windows"], "linux-arm": ["--arch", "aarch64"], macos: ["--os", "macos"] };
const commandOf = () => ["gpuinstall", "plan", ...(state.python || state.packages ? data.packages[state.packages] : []),
  ...state.cards.flatMap((card) => ["--gpu", `"${chipOf(card.kind)}"`]),
  ...(OPTIONS[state.os] || []),
  ...(state.cards.some((card) => isNvidias(card.kind)) ? ["--driver", versionOf(state.driver) && state.mode === "typed" ? versionOf(state.driver) : "VERSION"] : []),
  ...(state.python ? ["--python", data.pythons[state.python]] : [])].join(" ");

function answered(answer, platform, span, driver) {
  const said = (text) => fill(text, driver, platform, span);
  if (!answer) {
    at("answer").className = "scripted";
    return [node("h2", "This page has no answer for that"),
      node("p", "It answers for cards of one kind and, on Linux and Windows with any Python, for two kinds of NVIDIA's. For all others, run:"),
      node("pre", node("code", commandOf()))];
  }
  const [status, code] = answer.outcome, pairs = (list) => list.flatMap((_, i) => i % 2 ? [] : [[list[i], list[i + 1]]]);
  const reasons = pairs(answer.reasons).map(([slug, text]) => [slug, said(text)]);
  at("answer").className = `scripted ${answer.build.length ? "good" : "bad"}`;
  if (!answer.build.length) {
    return [node("h2", "No build fits"), ...reasons.map(([, text]) => node("p", text)),
      answer.notes.length ? node("h3", "What to do") : "", node("ul", answer.notes.map((text) => node("li", said(text)))),
      node("p", node("small", `gpuinstall ends with exit status ${code} here.`)), passedOver(answer, pairs, said)];
  }
  const [torch, backend, , python, sources, trust] = answer.build;
  const more = ["newer-driver", "fewer-gpus", "other-choice"];
  return [
    node("h2", `torch ${torch}+${backend} · Python ${python}`),
    status === "partial" ? node("p", "It does not run on every card: see below.", { class: "warning" }) : "",
    ...reasons.filter(([slug]) => !more.includes(slug)).map(([, text]) => node("p", text)),
    ...reasons.filter(([slug]) => more.includes(slug)).map(([, text]) => node("p", `More: ${text}`, { class: "more" })),
    ...answer.notes.map((text) => node("p", `Note: ${said(text)}`, { class: "warning" })),
    ...tabs(answer),
    passedOver(answer, pairs, said),
    node("p", node("small", `${trust === "high" ? "" : `Row of confidence “${trust}”. `}Source of this row: ${sources}. Names of the cards: ${data.named_by}.`)),
  ];
}

function passedOver(answer, pairs, said) {
  const found = pairs(answer.passedOver);
  if (!found.length) return "";
  return node("details", [node("summary", "Rejected builds, and why"),
    node("ul", found.map(([name, text]) => node("li", `${name}: ${said(text)}`)))]);
}

// Without a driver: what each one would give.
function overview(platform, kinds) {
  const rows = [];
  platform.spans.forEach((first, span) => {
    const answer = answerOf(classOf(platform, kinds, span), state.python, state.packages);
    if (!answer) return;
    const text = answer.build.length ? `torch ${answer.build[0]}+${answer.build[1]}${answer.outcome[0] === "partial" ? " (not on every card)" : ""}` : "nothing";
    const last = rows.at(-1);
    if (last && last.text === text) last.to = lastOf(platform, span);
    else rows.push({ from: release(first), to: lastOf(platform, span), text });
  });
  if (!rows.length) return answered(null, platform, null, null);
  const body = rows.map((row) => node("tr", [node("th", row.to === "and newer" ? `${row.from} and newer` : row.from === "0" ? row.to : `from ${row.from}, ${row.to}`, { scope: "row" }), node("td", row.text)]));
  return [node("h2", "It depends on the driver"), node("div", node("table", [
    node("thead", node("tr", [node("th", "Driver", { scope: "col" }), node("th", "The newest that runs", { scope: "col" })])),
    node("tbody", body)]), { class: "wide", role: "region", tabindex: "0", "aria-label": "By driver" })];
}

function commands(answer) {
  const [, , index, python, , , ...requirements] = answer.build, names = data.packages[state.packages].join(" ");
  const asked = `gpuinstall install${names === "torch" ? "" : ` ${names}`}${state.python ? ` --python ${python}` : ""}`;
  const pins = requirements.join(" "), from = index || "";
  return {
    gpuinstall: answer.outcome[0] === "cpu" && kindsOf().length && platformOf(state.os).spans.length ? `${asked} --backend cpu` : asked,
    uv: `uv venv --python ${python}\nuv pip install ${pins}${from && ` --index ${from}`}`,
    pip: `python${python} -m venv .venv\n${state.os === "windows" ? ".venv\\Scripts\\python" : ".venv/bin/python"} -m pip install ${pins}${from && ` --index-url ${from}`}`,
    Dockerfile: `FROM python:${python}-slim\nRUN pip install --no-cache-dir ${pins}${from && ` --index-url ${from}`}\n${kindsOf().every(isNvidias) ? "# docker run --gpus all: the host has the driver and the NVIDIA Container Toolkit" : "# gpuinstall export dockerfile writes the line that gives it the GPU"}`,
    requirements: [...(from ? [`--index-url ${from}`] : []), ...requirements].join("\n"),
  };
}

let chosen = "gpuinstall";
function tabs(answer) {
  const texts = commands(answer), names = Object.keys(texts), code = node("code", texts[chosen]);
  const panel = node("pre", code, { role: "tabpanel", id: "command", "aria-labelledby": `tab-${chosen}`, tabindex: "0" });
  const choose = (name) => {
    chosen = name;
    code.textContent = texts[name];
    panel.setAttribute("aria-labelledby", `tab-${name}`);
    list.childNodes.forEach((tab) => {
      tab.setAttribute("aria-selected", String(tab.textContent === name));
      tab.tabIndex = tab.textContent === name ? 0 : -1;
    });
  };
  const list = node("div", names.map((name) => {
    const tab = node("button", name, { role: "tab", type: "button", id: `tab-${name}`, "aria-controls": "command" });
    tab.addEventListener("click", () => choose(name));
    return tab;
  }), { role: "tablist", "aria-label": "Commands" });
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    choose(names[(names.indexOf(chosen) + step + names.length) % names.length]);
    at(`tab-${chosen}`).focus();
  });
  choose(chosen);
  const copy = node("button", "Copy", { type: "button", id: "copy" });
  copy.addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(code.textContent); copy.textContent = "Copied"; }
    catch { getSelection().selectAllChildren(code); copy.textContent = "Selected: press Ctrl+C"; }
  });
  return [list, panel, copy];
}

/* What is pasted. */
function readPasted(text) {
  if (text.length > LONGEST) return { fault: "This is too long for one of these outputs; paste the part with the cards." };
  const start = text.indexOf("{");
  if (/^\s*\{/.test(text) || text.slice(start).includes("gpuinstall.machine/1")) return readDocument(text.slice(start));
  const listing = [...text.matchAll(/^GPU +(\d{1,4}): (.{1,120}?)(?: \(UUID.*)?$/gm)].map((found) => [found[1], found[2]]);
  const rows = [...text.matchAll(/^\| +(\d{1,4}) +(\S.{0,60}?) +(On|Off|N\/A|TCC|WDDM|MCDM|WDDM-H|ERR!) *\| +(?:[0-9A-Fa-f]{4,8}:|N\/A)/gm)];
  const cards = listing.length ? listing : rows.map((found) => [found[1], found[2]]);
  const driver = /(?:Driver|KMD) Version: *(\d[\d.]*)/.exec(text)?.[1] || null;
  const program = /NVIDIA-SMI +(\d[\d.]*)/.exec(text)?.[1] || null;
  const windows = rows.some((found) => /TCC|DM/.test(found[3]));
  const os = windows ? "windows" : driver && program && driver !== program ? "wsl" : null;
  if (!cards.length && !driver) return { fault: "No card or driver was found in this text." };
  const problems = /\(nvgpu\)/.test(text) ? [{ message: "this is a Jetson: use gpuinstall plan instead of this page" }] : [];
  return { cards: cards.map(([index, name]) => ({ index: Number(index), name: name.replace(/^(?:NVIDIA\s+)?/i, "NVIDIA ") })), driver, os, problems };
}

// gfx1100 is a kind, xe 20.1.4 one of xe 20.1, metal 3 one of metal.
const kindOfChip = (code) => data.kinds.findIndex((each) => code === each || code.startsWith(`${each}.`) || code.startsWith(`${each} `));

function readDocument(text) {
  let machine;
  try { machine = JSON.parse(text); } catch { return { fault: "This looks like JSON, but it is truncated or malformed." }; }
  machine = machine?.data?.machine || machine?.data || machine;
  if (machine?.schema !== "gpuinstall.machine/1" || !Array.isArray(machine.gpus)) return { fault: "This is not a document of gpuinstall probe --json." };
  const cards = machine.gpus.slice(0, 1024).map((gpu, index) => ({
    index: Number.isInteger(gpu?.index) ? gpu.index : index, name: String(gpu?.name || `sm_${gpu?.compute_capability}`.replace(".", "")),
    kind: gpu?.compute_capability ? data.kinds.indexOf(String(gpu.compute_capability)) : gpu?.architecture ? kindOfChip(String(gpu.architecture)) : undefined,
  }));
  const os = machine.environment?.wsl ? "wsl" : machine.os === "linux" && machine.arch === "aarch64" ? "linux-arm" : String(machine.os);
  const problems = (Array.isArray(machine.problems) ? machine.problems : []).filter((problem) => problem?.blocking !== false);
  if (machine.environment?.jetson) problems.push({ message: "this is a Jetson: use gpuinstall plan instead of this page" });
  const driver = machine.driver?.version ? String(machine.driver.version) : null;
  return { cards, driver, os, problems, driverless: !driver && cards.length > 0 };
}

function takeOver() {
  const found = readPasted(at("paste").value);
  if (found.fault) { changed({ cards: [] }); at("pasted").textContent = found.fault; return; }
  const read = [], unclear = [];
  for (const { index, name, kind } of found.cards) {
    const card = cardOf(name, kind);
    if (card) read.push({ ...card, index }); else unclear.push(name);
  }
  const served = read.filter((card) => isNvidias(card.kind)), cards = served.length ? served : read;
  const known = data.platforms.some((each) => each.key === found.os);
  changed({ cards, ...(known ? { os: found.os } : {}), ...(found.driver ? { mode: "typed", driver: found.driver } : found.driverless ? { mode: "none" } : {}) });
  const said = [`Read: ${cards.length} ${cards.length === 1 ? "card" : "cards"}${found.driver ? `, driver ${found.driver}` : ""}.`];
  if (cards.length < read.length) said.push("An environment is for one maker's cards: those of the other are left out.");
  if (unclear.length) {
    said.push(`These names are truncated or unknown; choose them above: ${unclear.join(", ")}.`);
    at("search").value = unclear[0].replace(/(\.{3}|…)\s*$/, "");
  }
  found.problems.forEach((problem) => said.push(`First, on this machine: ${String(problem.message)}${problem.fix ? ` (${problem.fix})` : ""}.`));
  at("pasted").textContent = said.join(" ").slice(0, 2000);
}

/* The search box. */
const HELP = at("search-help").textContent;
const UNKNOWN = "No card of this name is known here: check the spelling, or paste the output of nvidia-smi below.";
let options = [], active = -1;
function showFound() {
  options = search(at("search").value.slice(0, 100)).slice(0, 12);
  active = options.length ? 0 : -1;
  at("search-help").textContent = at("search").value.trim() && !options.length ? UNKNOWN : HELP;
  at("found").replaceChildren(...options.map((card, number) => {
    const option = node("li", [card.name, " ", node("small", `${chipOf(card.kind)} ${data.generations[card.kind]}`)],
      { role: "option", id: `option${number}` });
    option.addEventListener("mousedown", (event) => { event.preventDefault(); pick(number); });
    return option;
  }));
  mark();
}

function mark() {
  at("found").hidden = !options.length;
  at("search").setAttribute("aria-expanded", String(options.length > 0));
  at("found").childNodes.forEach((option, number) => option.setAttribute("aria-selected", String(number === active)));
  if (active < 0) at("search").removeAttribute("aria-activedescendant");
  else { at("search").setAttribute("aria-activedescendant", `option${active}`); at(`option${active}`).scrollIntoView({ block: "nearest" }); }
}

function close() { options = []; active = -1; at("found").replaceChildren(); mark(); }

function pick(number) {
  const { name, kind } = options[number];
  at("search").value = "";
  close();
  const cards = [...state.cards, { name, kind }];
  changed({ cards, ...(data.homes[kind] ? { os: data.homes[kind] } : {}) });
}

at("search").addEventListener("input", showFound);
at("search").addEventListener("blur", close);
at("search").addEventListener("keydown", (event) => {
  if (event.key === "Escape") close();
  else if (event.key === "Enter") { event.preventDefault(); if (active >= 0) pick(active); }
  else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && options.length) {
    event.preventDefault();
    active = (active + (event.key === "ArrowDown" ? 1 : -1) + options.length) % options.length;
    mark();
  }
});
at("questions").addEventListener("submit", (event) => event.preventDefault());
at("mode").addEventListener("change", () => { changed({ mode: at("mode").value }); if (state.mode === "typed") at("driver").focus(); });
at("driver").addEventListener("input", () => changed({ driver: at("driver").value.slice(0, 40) }));
at("os").addEventListener("change", () => changed({ os: at("os").value }));
at("python").addEventListener("change", () => changed({ python: Number(at("python").value) }));
at("packages").addEventListener("change", () => changed({ packages: Number(at("packages").value) }));
at("read").addEventListener("click", takeOver);
addEventListener("popstate", () => { readAddress(); render(); });

const choices = (id, names, values) => at(id).replaceChildren(...names.map((name, number) => node("option", name, { value: values ? values[number] : String(number) })));
choices("os", data.platforms.map((each) => each.name), data.platforms.map((each) => each.key));
choices("python", PYTHONS);
choices("packages", PACKAGES);
document.querySelectorAll(".scripted").forEach((part) => { part.hidden = false; });
readAddress();
render();
