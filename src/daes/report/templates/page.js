// Draws every figure of the page from the JSON beside it, in the colours of the moment: light, dark or print.
(function () {
  "use strict";
  const scheme = window.matchMedia("screen and (prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 40rem)");
  const print = { on: false };
  const figures = [];
  const scales = {
    light: {
      sequential: [[0, "#f3f6f9"], [0.2, "#cfe0ee"], [0.45, "#86b7dc"], [0.7, "#3580bd"], [1, "#0b3c6f"]],
      diverging: [[0, "#0b5394"], [0.25, "#7fb2db"], [0.5, "#f5f5f4"], [0.75, "#eda16f"], [1, "#ab3e04"]],
    },
    dark: {
      sequential: [[0, "#1a2027"], [0.2, "#1d3d5a"], [0.45, "#2a6ca3"], [0.7, "#5bb3f0"], [1, "#e3f3ff"]],
      diverging: [[0, "#7cc4fa"], [0.25, "#2a6ca3"], [0.5, "#20262d"], [0.75, "#b5561d"], [1, "#ffb083"]],
    },
  };
  const coloured = new Set(["color", "colorscale", "fillcolor", "bgcolor", "bordercolor", "gridcolor", "linecolor"]);

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const dark = scheme.matches && !print.on;
    const find = (name) => style.getPropertyValue("--" + name).trim();
    return (token) => scales[dark ? "dark" : "light"][token] || find(token);
  }

  // "@ink" and the like become colours, and only where a colour is meant: names of columns are never touched.
  function painted(value, find, key) {
    if (Array.isArray(value)) return coloured.has(key) || typeof value[0] === "object" ? value.map((v) => painted(v, find, key)) : value;
    if (value && typeof value === "object") {
      const copy = {};
      for (const name of Object.keys(value)) copy[name] = painted(value[name], find, name);
      return copy;
    }
    if (typeof value !== "string" || value[0] !== "@" || !coloured.has(key)) return value;
    const [token, alpha] = value.slice(1).split("/");
    const colour = find(token);
    return alpha ? faded(colour, Number(alpha)) : colour;
  }

  function faded(hex, alpha) {
    const part = (place) => parseInt(hex.slice(place, place + 2), 16);
    return `rgba(${part(1)},${part(3)},${part(5)},${alpha})`;
  }

  function axis({ narrowtext, narrowvals, ...given }, find, tight) {
    if (tight && narrowtext) Object.assign(given, { ticktext: narrowtext, tickvals: narrowvals || given.tickvals });
    return Object.assign(
      { gridcolor: find("faint"), linecolor: find("line"), zeroline: false, zerolinecolor: find("line"), ticks: "", automargin: true, fixedrange: narrow.matches },
      given,
      { title: Object.assign({ standoff: 10, font: { color: find("quiet"), size: 12 } }, given.title) },
    );
  }

  // Labels at the ends of lines need room; where there is none, the keys above the plot tell the lines apart.
  function small(figure) { return figure.width <= 416; }

  function layout(figure, view) {
    const find = colours();
    const given = painted(view.layout, find, "");
    const made = Object.assign({
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: "x unified",
      dragmode: narrow.matches ? false : "zoom", width: figure.width, height: figure.height,
    }, given);
    made.font = { family: getComputedStyle(document.body).fontFamily, size: 12, color: find("ink") };
    made.margin = Object.assign({ l: 8, r: 8, t: 10, b: 8 }, given.margin);
    made.hoverlabel = { bgcolor: find("raised"), bordercolor: find("line"), font: { color: find("ink"), size: 12 }, align: "left" };
    for (const name of Object.keys(made)) if (/^[xy]axis\d*$/.test(name)) made[name] = axis(made[name], find, small(figure));
    const bare = figure.keyed && small(figure);
    made.annotations = (made.annotations || [])
      .filter((label) => !(label.end && bare) && !figure.hidden.has(label.group))
      .map(({ end, group, ...label }) => Object.assign({ showarrow: false }, label));
    if (bare || (small(figure) && !given.annotations)) made.margin.r = 26;
    return made;
  }

  function traces(figure, view) {
    const data = painted(view.data, colours(), "");
    for (const trace of data) {
      if (figure.hidden.has(trace.legendgroup)) trace.visible = false;
      if (trace.colorbar) Object.assign(trace.colorbar, { thickness: 10, outlinewidth: 0, len: 1, ticks: "", tickfont: { size: 11 } });
      if (trace.colorbar && small(figure)) Object.assign(trace.colorbar, { orientation: "h", y: 1, yanchor: "bottom", ypad: 6, x: 0.5, xanchor: "center" });
    }
    return data;
  }

  function draw(figure) {
    const view = figure.spec.views[figure.chosen];
    const config = { displayModeBar: false, showTips: false };
    const was = small(figure);
    figure.width = figure.place.clientWidth;
    figure.height = Math.round(figure.spec.height * (print.on ? 0.8 : 1)); // two to a sheet of paper
    figure.place.style.height = figure.height + "px";
    // A colour bar that changes its direction leaves its old self behind, unless the plot is begun anew.
    if (figure.drawn && was !== small(figure)) Plotly.purge(figure.place);
    figure.drawn = true;
    return Plotly.react(figure.place, traces(figure, view), layout(figure, view), config);
  }

  function choose(figure, chosen) {
    figure.chosen = chosen;
    if (figure.said) figure.said.textContent = figure.spec.views[chosen].label;
    return draw(figure);
  }

  function start(element) {
    const figure = {
      place: element.querySelector(".plot"),
      spec: JSON.parse(element.querySelector('script[type="application/json"]').textContent),
      said: element.querySelector(".chosen"),
      chosen: 0,
      hidden: new Set(),
      keyed: element.querySelector(".keys") !== null,
      width: 0,
      drawn: false,
    };
    figures.push(figure);
    const select = element.querySelector("select");
    if (select) {
      select.addEventListener("change", () => choose(figure, select.selectedIndex));
      figure.chosen = Math.max(0, select.selectedIndex);
    }
    for (const button of element.querySelectorAll(".keys button")) {
      button.addEventListener("click", () => {
        const shown = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(shown));
        figure.hidden[shown ? "delete" : "add"](button.dataset.group);
        draw(figure);
      });
    }
    const first = choose(figure, figure.chosen);
    new ResizeObserver(() => {
      if (!print.on && figure.place.clientWidth !== figure.width) draw(figure);
    }).observe(figure.place);
    return first;
  }

  function redraw() { return Promise.all(figures.map(draw)); }
  scheme.addEventListener("change", redraw);
  narrow.addEventListener("change", redraw);
  function printing(on) {
    print.on = on;
    document.documentElement.classList.toggle("printing", on);
    return redraw();
  }
  window.addEventListener("beforeprint", () => printing(true));
  window.addEventListener("afterprint", () => printing(false));

  function watchControls() {
    for (const input of document.querySelectorAll("[data-find]")) {
      const rows = Array.from(input.closest(".found").querySelectorAll("tbody tr"));
      input.addEventListener("input", () => {
        const wanted = input.value.trim().toLowerCase();
        for (const row of rows) row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
      });
    }
    for (const button of document.querySelectorAll("[data-copy]")) {
      button.addEventListener("click", async () => {
        const code = button.parentElement.querySelector("code");
        try {
          await navigator.clipboard.writeText(code.textContent);
          button.textContent = "Copied";
        } catch {
          getSelection().selectAllChildren(code); // a page without leave to write can still show what to copy
        }
      });
    }
    for (const link of document.querySelectorAll("[data-choose]")) {
      link.addEventListener("click", () => {
        const select = document.querySelector("#response select");
        const place = select ? Array.from(select.options).findIndex((option) => option.textContent === link.dataset.choose) : -1;
        if (place < 0) return;
        select.selectedIndex = place;
        select.dispatchEvent(new Event("change"));
      });
    }
    const links = new Map(Array.from(document.querySelectorAll("nav a"), (link) => [link.hash.slice(1), link]));
    const observer = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        for (const link of links.values()) link.removeAttribute("aria-current");
        const link = links.get(entry.target.id);
        link.setAttribute("aria-current", "true");
        const list = link.closest("ul");
        list.scrollLeft += link.getBoundingClientRect().left - list.getBoundingClientRect().left - list.clientWidth / 3;
      }
    }, { rootMargin: "-20% 0px -75% 0px" });
    for (const section of document.querySelectorAll("main > section")) observer.observe(section);
  }

  // plotly.js is in the page as gzip in base64, a third of its size.
  async function unpack(element) {
    const bytes = Uint8Array.from(atob(element.textContent), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
  }

  async function main() {
    const elements = Array.from(document.querySelectorAll("figure[data-plot]"));
    if (elements.length) await unpack(document.getElementById("plotly"));
    await Promise.all(elements.map(start));
    document.documentElement.dataset.drawn = String(figures.length);
  }
  watchControls();
  main();
})();
