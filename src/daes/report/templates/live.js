"use strict";
const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);
let latest = null;

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function shape(parent, name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

function shown(value, unit) {
  if (value === null || !isFinite(value)) return "–";
  if (unit === "s") return value >= 1 ? number(value) + " s" : value >= 1e-3 ? number(value * 1e3) + " ms" : number(value * 1e6) + " µs";
  if (unit === "%") return number(value * 100) + " %";
  return number(value);
}

function number(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return Number((value / 1e6).toPrecision(3)) + "M";
  if (size >= 1e4) return Number((value / 1e3).toPrecision(3)) + "k";
  return String(Number(value.toPrecision(3)));
}

function ticks(low, high, most) {
  const span = high - low || 1;
  const power = 10 ** Math.floor(Math.log10(span / most));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => span / one <= most);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) found.push(Math.abs(at) < step / 1e6 ? 0 : at);
  return found;
}

function draw(figure, chart) {
  const holder = figure.querySelector(".plot");
  const width = Math.max(holder.clientWidth, 200), height = 190;
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", chart.title);
  const xs = chart.x, all = chart.series.flatMap((one) => one.values).filter((value) => value !== null);
  if (!xs.length || !all.length) {
    holder.replaceChildren(element("p", {class: "lead"}, "nothing yet"));
    return;
  }
  const range = (values, zero) => {
    let low = Math.min(...values), high = Math.max(...values);
    if (zero) low = Math.min(low, 0);
    if (low === high) high = low + (Math.abs(low) || 1);
    return [low, high];
  };
  const [bottom, top] = range(all, chart.zero);
  const [first, last] = chart.kind === "bars" ? [xs[0], xs[xs.length - 1]] : range(xs, false);
  const left = 52, right = 12, above = 18, below = 24;
  const px = (x) => left + (x - first) / (last - first || 1) * (width - left - right);
  const py = (y) => height - below - (y - bottom) / (top - bottom) * (height - above - below);
  for (const at of ticks(bottom, top, 4)) {
    shape(svg, "line", {class: "grid-line", x1: left, x2: width - right, y1: py(at), y2: py(at)});
    shape(svg, "text", {x: left - 6, y: py(at) + 4, "text-anchor": "end"}, shown(at, chart.unit));
  }
  for (const at of ticks(first, last, Math.max(2, Math.floor(width / 110))))
    shape(svg, "text", {x: px(at), y: height - 7, "text-anchor": px(at) > width - 40 ? "end" : "middle"}, shown(at, chart.x_unit));
  shape(svg, "line", {class: "axis", x1: left, x2: width - right, y1: height - below, y2: height - below});
  if (chart.kind === "match") shape(svg, "line", {class: "axis", x1: px(first), y1: py(Math.max(first, bottom)), x2: px(Math.min(last, top)), y2: py(Math.min(last, top))});
  chart.series.forEach((one, place) => {
    const colour = `var(--c${place + 1})`;
    if (chart.kind === "bars") {
      one.values.forEach((value, bin) => shape(svg, "rect", {x: px(xs[bin]), y: py(value), width: Math.max(px(xs[bin + 1]) - px(xs[bin]) - 1, .5),
        height: Math.max(height - below - py(value), 0), fill: colour}));
    } else if (chart.kind === "match") {
      one.values.forEach((value, bin) => { if (value !== null) shape(svg, "circle", {cx: px(xs[bin]), cy: py(value), r: 4, fill: colour}); });
    } else {
      let path = "", pen = "M";
      one.values.forEach((value, bin) => {
        if (value === null) { pen = "M"; return; }
        path += `${pen}${px(xs[bin]).toFixed(1)} ${py(value).toFixed(1)}`;
        if (pen === "M" && (one.values[bin + 1] ?? null) === null) shape(svg, "circle", {cx: px(xs[bin]), cy: py(value), r: 2, fill: colour});
        pen = "L";
      });
      shape(svg, "path", {class: "line", d: path, style: `stroke: ${colour}`});
    }
    if (chart.series.length > 1)
      shape(svg, "text", {class: "label", x: left + 8 + place * Math.min(90, (width - left) / chart.series.length), y: 10, style: `fill: ${colour}`}, one.name);
  });
  holder.replaceChildren(svg);
}

function figureOf(chart) {
  const figure = element("figure", {"data-chart": chart.id}, element("h3", {}, chart.title), element("div", {class: "plot"}));
  if (chart.caption) figure.append(element("figcaption", {}, chart.caption));
  return figure;
}

function tableOf(table) {
  const head = element("tr", {}, ...table.columns.map((name, place) => element("th", place ? {} : {class: "left"}, name)));
  const rows = table.rows.map((row) => element("tr", row.alarm ? {class: "alarm"} : {},
    ...row.cells.map((cell, place) => element("td", place ? {} : {class: "left"}, cell))));
  return element("div", {class: "scroll"}, element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)));
}

function show(view) {
  latest = view;
  document.title = view.title;
  byId("title").textContent = view.title;
  byId("lead").textContent = view.lead;
  byId("facts").replaceChildren(...view.facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  const sections = byId("sections");
  const known = new Map(Array.from(sections.children, (one) => [one.id, one]));
  for (const section of view.sections) {
    let place = known.get(section.id);
    if (!place) {
      place = element("section", {id: section.id}, element("h2", {}, section.title), element("div", {class: "said"}), element("div", {class: "grid"}), element("div", {class: "tables"}));
      sections.append(place);
    }
    known.delete(section.id);
    place.querySelector(".said").replaceChildren(...(section.notes || []).map((note) => element("p", {class: note.alarm ? "warning" : ""}, note.text)));
    const grid = place.querySelector(".grid");
    for (const chart of section.charts || []) {
      let figure = grid.querySelector(`[data-chart="${CSS.escape(chart.id)}"]`);
      if (!figure) grid.append(figure = figureOf(chart));
      draw(figure, chart);
    }
    place.querySelector(".tables").replaceChildren(...(section.tables || []).map(tableOf));
  }
  for (const gone of known.values()) gone.remove();
  document.documentElement.dataset.drawn = "yes";
}

function say(text, bad) {
  byId("state").textContent = text;
  byId("state").classList.toggle("bad", Boolean(bad));
}

async function ask() {
  try {
    const key = sessionStorage.getItem("daes-key");
    const answer = await fetch("view", {cache: "no-store", headers: key ? {Authorization: `Bearer ${key}`} : {}});
    byId("key").hidden = answer.status !== 401;
    if (answer.status === 401) { say(key ? "The key is not right." : "The server asks for its API key.", Boolean(key)); document.documentElement.dataset.drawn = "locked"; return; }
    if (!answer.ok) throw new Error(`it answers ${answer.status}`);
    show(await answer.json());
    say("");
  } catch (error) {
    say(`The numbers are old: the server does not answer (${error.message}).`, true);
  }
}

byId("key").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("daes-key", new FormData(event.target).get("key"));
  ask();
});
new ResizeObserver(() => { if (latest) show(latest); }).observe(document.body);
(async () => { for (;;) { if (!document.hidden) await ask(); await new Promise((done) => setTimeout(done, EVERY)); } })();
