// Draws what the server tells once a second. Names come from users: they only ever become text, never markup.
"use strict";

const KEPT = 300; // seconds in a picture, at most
const FIRST = 60; // and at first
const GAP = 3; // seconds without a word: what was then is not known
const NAMED = 8; // applications with a colour of their own; the others are drawn together
// Told apart with all common kinds of colour blindness (Okabe and Ito), on light and on dark.
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b3a300", "#7f6fd1"];
const OTHERS = "#8a8a8a";
const WIDTH = 1000, HEIGHT = 200, FLOOR = 180;

const gates = new Map();

function node(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function shape(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function scaled(value, step, units) {
  let unit = 0;
  while (unit + 1 < units.length && value >= step * 0.9995) {
    value /= step;
    unit += 1;
  }
  const digits = Number.isInteger(value) || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[unit]}`;
}
const rate = (bytes) => `${scaled(bytes, 1024, ["B", "KiB", "MiB", "GiB", "TiB"])}/s`;
const time = (ns) => scaled(ns, 1000, ["ns", "us", "ms", "s"]);
const count = (n) => n.toLocaleString("en").replaceAll(",", "\u202f");
const percent = (value) => (value === null ? "-" : `${value.toFixed(0)} %`);

function opened(name) {
  const parts = {
    section: node("section"),
    facts: node("ul", { class: "facts" }),
    why: node("p", { class: "soft" }),
    over: node("h3"),
    rates: shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" }),
    latency: shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" }),
    table: node("table"),
    samples: [],
    colours: new Map(),
  };
  parts.rates.setAttribute("aria-label", "bytes a second of each application, stacked");
  parts.latency.setAttribute("aria-label", "mean latency of each application");
  parts.section.append(
    node("h2", {}, name), parts.facts, parts.why,
    parts.over, parts.rates,
    node("h3", {}, "Latency"), parts.latency,
    node("div", { class: "scroll" }, parts.table),
  );
  document.getElementById("gates").append(parts.section);
  return parts;
}

// Who has a colour: those with most bytes in the picture. One that has one keeps it.
function named(parts) {
  const bytes = new Map();
  for (const { apps } of parts.samples) {
    for (const [app, row] of apps) bytes.set(app, (bytes.get(app) || 0) + row.read + row.written);
  }
  const most = [...bytes].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, NAMED).map(([app]) => app);
  for (const app of [...parts.colours.keys()]) if (!most.includes(app)) parts.colours.delete(app);
  for (const app of most) {
    if (parts.colours.has(app)) continue;
    const used = [...parts.colours.values()];
    parts.colours.set(app, COLOURS.find((colour) => !used.includes(colour)));
  }
  return [...parts.colours.keys()];
}

// Seconds in the picture: it begins with a minute, and grows.
function span(parts, now) {
  return Math.min(KEPT, Math.max(FIRST, now - parts.samples[0].at));
}

function x(parts, sample, now) {
  return WIDTH - ((now - sample.at) / span(parts, now)) * WIDTH;
}

// The floor and two lines above it, with what they stand for. Text is not stretched with the picture.
function grid(svg, most, words) {
  for (const part of [0, 0.5, 1]) {
    const y = FLOOR - part * (FLOOR - 20);
    svg.append(shape("line", { class: "grid", x1: 0, x2: WIDTH, y1: y, y2: y }));
    const stretch = svg.clientWidth > 0 ? (WIDTH / svg.clientWidth) * (svg.clientHeight / HEIGHT) : 1;
    const text = shape("text", { transform: `translate(2 ${y - 4}) scale(${stretch} 1)` }, words(most * part));
    svg.append(text);
  }
}

function drawRates(parts, now) {
  const { rates, samples } = parts;
  const apps = named(parts);
  const of = (sample, app) => {
    const row = sample.apps.get(app);
    return row ? row.read + row.written : 0;
  };
  const totals = samples.map((sample) => sample.total);
  const most = Math.max(1, ...totals);
  const y = (bytes) => FLOOR - (bytes / most) * (FLOOR - 20);
  rates.replaceChildren();
  const below = samples.map(() => 0);
  const layer = (colour, name, bytes) => {
    const up = [], down = [];
    samples.forEach((sample, index) => {
      const at = x(parts, sample, now).toFixed(1);
      down.unshift(`${at},${y(below[index]).toFixed(1)}`);
      below[index] += bytes(sample, index);
      up.push(`${at},${y(below[index]).toFixed(1)}`);
    });
    const area = shape("polygon", { points: [...up, ...down].join(" "), fill: colour });
    area.append(shape("title", {}, name));
    rates.append(area);
  };
  for (const app of apps) layer(parts.colours.get(app), parts.names.get(app) || String(app), (sample) => of(sample, app));
  if (samples.some((sample, index) => sample.apps.size > apps.length || totals[index] > below[index])) {
    layer(OTHERS, "others", (_, index) => Math.max(0, totals[index] - below[index]));
  }
  grid(rates, most, rate);
}

function drawLatency(parts, now) {
  const { latency, samples, colours } = parts;
  const values = samples.flatMap((sample) => [...colours.keys()].map((app) => sample.apps.get(app)?.latency_ns || 0));
  const most = Math.max(1, ...values);
  latency.replaceChildren();
  for (const [app, colour] of colours) {
    let path = "", drawing = false;
    for (const sample of samples) {
      const value = sample.apps.get(app)?.latency_ns;
      if (value === null || value === undefined) {
        drawing = false;
        continue;
      }
      path += `${drawing ? "L" : "M"}${x(parts, sample, now).toFixed(1)} ${(FLOOR - (value / most) * (FLOOR - 20)).toFixed(1)}`;
      drawing = true;
    }
    const line = shape("path", { d: path || "M0 0", fill: "none", stroke: colour, "stroke-width": 2, "vector-effect": "non-scaling-stroke" });
    line.append(shape("title", {}, parts.names.get(app) || String(app)));
    latency.append(line);
  }
  grid(latency, most, time);
}

function share(of) {
  const bar = node("span", { class: "share" });
  const got = node("span", { class: "got" });
  got.style.width = `${Math.min(100, of.got_percent || 0)}%`;
  bar.append(got);
  if (of.entitled_percent !== null) {
    const mark = node("span", { class: "entitled" });
    mark.style.left = `${Math.min(100, of.entitled_percent)}%`;
    bar.append(mark);
  }
  return bar;
}

function drawTable(parts, gate) {
  const hasClasses = gate.apps.some((app) => app.class);
  const heads = [["application"], ["read"], ["written"], ["requests/s", "wide"], ["latency"], ["queued"]];
  if (hasClasses) heads.push(["got"], ["entitled"], ["", "wide"], ["deferred", "wide"], ["limits", "wide"]);
  const cell = (kind, text, name) => node(kind, name ? { class: name } : {}, text);
  const head = node("thead", {}, node("tr", {}, ...heads.map(([text, name]) => cell("th", text, name))));
  const rows = gate.apps.map((app) => {
    const swatch = node("span", { class: "swatch" });
    // A group is in no picture: those in it are.
    if (!app.is_group) swatch.style.background = parts.colours.get(app.app) || OTHERS;
    const name = node("th", { scope: "row", title: app.name }, swatch, app.name);
    name.style.paddingLeft = `${app.depth}em`;
    const row = node("tr", {}, name);
    row.append(
      cell("td", rate(app.read)), cell("td", rate(app.written)), cell("td", count(app.requests), "wide"),
      cell("td", app.latency_ns === null ? "-" : time(app.latency_ns)), cell("td", app.queued === null ? "-" : count(app.queued)),
    );
    const of = app.class;
    if (of) {
      const limits = [of.min && `at least ${of.min}`, of.max && `at most ${of.max}`].filter(Boolean).join(", ");
      row.append(
        cell("td", percent(of.got_percent)), cell("td", percent(of.entitled_percent)), node("td", { class: "wide" }, share(of)),
        cell("td", count(of.deferred), "wide"), cell("td", limits || "-", "wide"),
      );
    }
    return row;
  });
  parts.table.replaceChildren(head, node("tbody", {}, ...rows));
}

function fact(name, value) {
  return node("li", {}, node("span", {}, name), node("b", {}, value));
}

function show(gate, now) {
  if (!gates.has(gate.gate)) gates.set(gate.gate, opened(gate.gate));
  const parts = gates.get(gate.gate);
  parts.names ||= new Map();
  const apps = gate.apps.filter((app) => !app.is_group);
  for (const app of apps) parts.names.set(app.app, app.name);
  const last = parts.samples.at(-1);
  // Else the picture would go on from what was before as if that had been so all the time.
  if (last && now - last.at > GAP) for (const at of [last.at + 1, now - 1]) parts.samples.push({ at, total: 0, apps: new Map() });
  const [read, written, requests] = gate.total;
  parts.samples.push({ at: now, total: read + written, apps: new Map(apps.map((app) => [app.app, app])) });
  while (parts.samples.length > 0 && now - parts.samples[0].at > KEPT) parts.samples.shift();
  parts.facts.replaceChildren(
    fact("read", rate(read)), fact("written", rate(written)), fact("requests/s", count(requests)),
    fact("queued", count(gate.queued)), fact("in service", `${gate.in_service} of ${gate.depth}`), fact("scheduler", gate.scheduler),
  );
  const why = [gate.why && `Chosen: ${gate.why}`, gate.policy && `Policy: ${gate.policy}`].filter(Boolean);
  parts.why.textContent = why.join(". ");
  const minutes = span(parts, now) / 60;
  parts.over.textContent = `Bytes a second, over the last ${minutes < 1.5 ? "minute" : `${minutes.toFixed(0)} minutes`}`;
  drawRates(parts, now);
  drawLatency(parts, now);
  drawTable(parts, gate);
}

function say(text, isLost) {
  const state = document.getElementById("state");
  state.textContent = text;
  state.className = isLost ? "lost" : "";
}

const events = new EventSource("events");
events.onmessage = (event) => {
  const now = performance.now() / 1000;
  const told = JSON.parse(event.data);
  for (const gate of told.gates) show(gate, now);
  for (const [name, parts] of gates) {
    if (told.gates.some((gate) => gate.gate === name)) continue;
    parts.section.remove();
    gates.delete(name);
  }
  say(told.gates.length > 0 ? "live" : "there is no gate", false);
};
events.onerror = () => {
  const isOver = events.readyState === EventSource.CLOSED;
  say(isOver ? "not answered: too many look, or it has ended; reload to try again" : "connection lost, trying again", true);
};
