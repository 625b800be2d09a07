"use strict";
// The page reads without this: it adds the charts, search and filters, keys, and the choice of light or dark.
(() => {
  const $ = (id) => document.getElementById(id);
  const root = document.documentElement;
  const token = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const redraw = [];
  const NARROW = 560;

  // ---------------------------------------------------------------------------------------------- light and dark

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const toggleTheme = () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    redraw.forEach((draw) => draw());
  };
  $("theme").hidden = false;
  $("theme").addEventListener("click", toggleTheme);
  dark.addEventListener("change", () => redraw.forEach((draw) => draw()));

  // --------------------------------------------------------------------------------------------------- the cards

  const canUnpack = typeof DecompressionStream !== "undefined";
  const unpacked = async (id) => {
    const bytes = Uint8Array.from(atob($(id).textContent), (char) => char.charCodeAt(0));
    $(id).remove();
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };

  let showAll = () => {};
  const listCards = (list) => {
    const cards = [...list.children];
    const entries = cards.map((card, place) => ({
      card,
      place,
      code: card.dataset.code,
      file: card.dataset.file,
      module: card.dataset.module,
      line: Number(card.dataset.line),
      share: Number(card.dataset.share),
      bytes: Number(card.dataset.bytes),
      text: null,
    }));
    const choices = { code: $("by-code"), file: $("by-file"), module: $("by-module") };
    for (const [key, select] of Object.entries(choices)) {
      const found = [...new Set(entries.map((entry) => entry[key]).filter(Boolean))].sort();
      select.append(...found.map((value) => new Option(value.length > 60 ? `…${value.slice(-59)}` : value, value)));
      select.parentElement.hidden = found.length < 2;
    }
    const orders = {
      "": (a, b) => a.place - b.place,
      share: (a, b) => b.share - a.share || a.place - b.place,
      bytes: (a, b) => b.bytes - a.bytes || a.place - b.place,
      code: (a, b) => a.code.localeCompare(b.code) || a.place - b.place,
      file: (a, b) => a.file.localeCompare(b.file) || a.line - b.line || a.place - b.place,
    };
    const filter = () => {
      const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const entry of entries) {
        let fits = Object.entries(choices).every(([key, select]) => !select.value || entry[key] === select.value);
        if (fits && words.length) {
          entry.text ??= entry.card.textContent.toLowerCase();
          fits = words.every((word) => entry.text.includes(word));
        }
        entry.card.hidden = !fits;
        shown += fits;
      }
      $("shown").textContent = shown === cards.length ? shown : `${shown} of ${cards.length}`;
      $("none").hidden = shown > 0;
    };
    showAll = () => {
      $("search").value = "";
      Object.values(choices).forEach((select) => (select.value = ""));
      filter();
    };
    const sort = () => list.append(...[...entries].sort(orders[$("order").value]).map((entry) => entry.card));
    const openAll = (open) => entries.forEach((entry) => (entry.card.firstElementChild.open = open));
    let waiting = 0;
    $("search").addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(filter, 120);
    });
    Object.values(choices).forEach((select) => select.addEventListener("change", filter));
    $("order").addEventListener("change", sort);
    $("filters").addEventListener("submit", (event) => event.preventDefault());
    $("open-all").addEventListener("click", (event) => {
      const open = event.target.textContent === "Open all";
      openAll(open);
      event.target.textContent = open ? "Close all" : "Open all";
    });
    $("filters").hidden = cards.length < 2;
    $("keys").hidden = false;

    const step = (by) => {
      const visible = [...list.children].filter((card) => !card.hidden);
      const at = visible.indexOf(document.activeElement.closest(".card"));
      const next = visible[at < 0 ? (by > 0 ? 0 : visible.length - 1) : at + by];
      if (next) {
        next.focus({ preventScroll: true });
        next.scrollIntoView({ block: "nearest" });
      }
    };
    const keys = {
      j: () => step(1),
      k: () => step(-1),
      o: () => {
        const card = document.activeElement.closest(".card");
        if (card) card.firstElementChild.open = !card.firstElementChild.open;
      },
      "/": () => $("search").focus(),
    };
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.target.matches("input, select, textarea")) {
        if (event.key === "Escape") event.target.blur();
        return;
      }
      const act = event.key === "t" ? toggleTheme : keys[event.key];
      if (act) {
        event.preventDefault();
        act();
      }
    });
  };

  const follow = () => {
    const target = location.hash.length > 1 && $(location.hash.slice(1));
    if (!target) return;
    if (target.hidden) showAll();
    for (const part of [target, ...target.children]) if (part.matches("details")) part.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", follow);
  document.addEventListener("click", (event) => {
    if (event.target.closest?.('a[href^="#"]')?.hash === location.hash) follow(); // no change that would be told
  });
  const rest = $("rest") && canUnpack ? unpacked("rest") : Promise.resolve("");
  rest.then((text) => {
    if (!$("cards")) return;
    $("cards").insertAdjacentHTML("beforeend", text);
    listCards($("cards"));
    follow();
  });

  // On paper everything is open, and light.
  let closed = [];
  let theme;
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((details) => (details.open = true));
    theme = root.dataset.theme;
    root.dataset.theme = "light";
    redraw.forEach((draw) => draw());
  });
  addEventListener("afterprint", () => {
    closed.forEach((details) => (details.open = false));
    if (theme === undefined) delete root.dataset.theme;
    else root.dataset.theme = theme;
    redraw.forEach((draw) => draw());
  });

  // -------------------------------------------------------------------------------------------------- the charts

  if (!$("data")) return;

  const load = async () => {
    const script = document.createElement("script");
    script.textContent = await unpacked("plotly");
    document.head.append(script);
    return JSON.parse(await unpacked("data"));
  };
  const base = (more) => ({
    paper_bgcolor: token("ground"),
    plot_bgcolor: token("ground"),
    font: { family: "system-ui, sans-serif", size: 12, color: token("text") },
    hoverlabel: { bgcolor: token("panel"), bordercolor: token("line"), font: { color: token("text") }, align: "left" },
    ...more,
  });
  const config = { displaylogo: false, displayModeBar: false, scrollZoom: false, doubleClick: false };
  // Plotly reads tags in its labels, and programs may have any text.
  const literal = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  let width = innerWidth;
  let resizing = 0;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(resizing);
    resizing = setTimeout(() => redraw.forEach((draw) => draw()), 150);
  });

  // The layout map: a heat map of modules by calls, drawn for what is in view: more columns than pixels show nothing.
  const drawMap = (data) => {
    const calls = data.calls;
    const count = calls.s.length;
    const plot = $("map");
    const outside = "outside modules";
    const MOST_ROWS = 500;
    const depths = data.modules.map((path) => path.split(".").length);
    const deepest = Math.max(1, ...depths);
    const at = (path, depth) => path.split(".").slice(0, depth).join(".");
    const rowsAt = (depth) => {
      const rows = new Map();
      const row = new Int32Array(count);
      for (let i = 0; i < count; i++) {
        let name = calls.m[i] < 0 ? outside : at(data.modules[calls.m[i]], depth);
        if (rows.size >= MOST_ROWS && !rows.has(name)) name = "… other modules";
        if (!rows.has(name)) rows.set(name, rows.size);
        row[i] = rows.get(name);
      }
      return { names: [...rows.keys()], row };
    };
    // As deep as there is room for; deeper if all that is left are a few rows, as of a list of many layers.
    const sizes = Array.from({ length: deepest }, (_, index) => rowsAt(index + 1).names.length);
    let depth = deepest;
    while (depth > 1 && sizes[depth - 1] > 48) depth--;
    if (depth < deepest && sizes[depth - 1] < 6) depth++;
    const select = $("map-depth");
    for (let d = 1; d <= deepest; d++) select.append(new Option(d === deepest ? "all" : d, d, false, d === depth));
    select.parentElement.hidden = deepest < 2;
    let rows = rowsAt(depth);
    // Optimizers make many calls outside modules: at first the map shows from the first call of a module to the last.
    const inside = calls.m.map((module, i) => (module < 0 ? -1 : i)).filter((i) => i >= 0);
    const isMost = inside.length > 0 && inside.at(-1) - inside[0] + 1 < 0.8 * count;
    let view = isMost ? [inside[0], inside.at(-1) + 1] : null;

    const used = new Set(calls.c);
    const classes = data.classes.filter((_, index) => used.has(index)).map((name) => [name, name]);
    if (used.has(-1)) classes.push(["unknown", "layout not known"]);
    $("map-legend").append(
      ...classes.map(([colour, name]) => {
        const item = document.createElement("li");
        const patch = document.createElement("span");
        patch.style.background = `var(--${colour})`;
        item.append(patch, name);
        return item;
      }),
    );
    if (calls.k.some(Boolean)) {
      const item = document.createElement("li");
      item.textContent = "◆ copies because of layout";
      $("map-legend").append(item);
    }

    const largest = calls.b.reduce((most, moved) => Math.max(most, moved), 1);
    const byTime = () => $("map-axis").value === "time";
    const bounds = () => (byTime() ? [0, Math.max(data.duration, 1)] : [0, count]);
    const start = (i) => (byTime() ? calls.s[i] : i);
    const end = (i) => (byTime() ? calls.s[i] + calls.d[i] : i + 1);
    const colours = () => [...data.classes.map(token), token("unknown")];

    let here = -1; // the call that the keyboard is at
    let owner = [];
    const cells = ([from, to]) => {
      const columns = Math.max(plot.clientWidth - (plot.clientWidth < NARROW ? 120 : 240), 120);
      const width = Math.min(columns, byTime() ? columns : Math.max(Math.ceil(to - from), 1));
      const z = rows.names.map(() => new Array(width).fill(null));
      owner = rows.names.map(() => new Int32Array(width).fill(-1));
      const scale = width / (to - from);
      for (let i = 0; i < count; i++) {
        if (end(i) <= from || start(i) >= to) continue;
        const r = rows.row[i];
        const first = Math.max(Math.floor((start(i) - from) * scale), 0);
        const last = Math.min(Math.max(Math.ceil((end(i) - from) * scale) - 1, first), width - 1);
        const value = calls.c[i] < 0 ? data.classes.length : calls.c[i];
        for (let x = first; x <= last; x++) {
          const known = owner[r][x];
          // Of calls that share a cell it shows the one that copies, else the one whose layout is furthest from contiguous.
          const better = known < 0 || calls.k[i] > calls.k[known] || (calls.k[i] === calls.k[known] && calls.c[i] > calls.c[known]);
          if (better) {
            owner[r][x] = i;
            z[r][x] = value;
          }
        }
      }
      const step = (to - from) / width;
      return { z, x: Array.from({ length: width }, (_, index) => from + (index + 0.5) * step), step };
    };
    const marks = ([from, to], rowsOfMark) => {
      const spots = new Map(); // of those that share one, the one that moves most
      const grain = (to - from) / 300;
      for (let i = 0; i < count; i++) {
        const middle = (start(i) + end(i)) / 2;
        if (!calls.k[i] || middle < from || middle > to) continue;
        const spot = Math.floor(rows.row[i] / rowsOfMark) * 1000 + Math.floor((middle - from) / grain);
        const known = spots.get(spot);
        if (known === undefined || calls.b[i] > calls.b[known]) spots.set(spot, i);
      }
      const shown = [...spots.values()];
      return {
        x: shown.map((i) => (start(i) + end(i)) / 2),
        y: shown.map((i) => rows.row[i]),
        size: shown.map((i) => 6 + 8 * Math.sqrt(calls.b[i] / largest)),
        call: shown,
      };
    };
    const bytes = (value) => {
      const units = ["B", "kB", "MB", "GB", "TB"];
      let unit = 0;
      while (value >= 999.5 && unit < units.length - 1) (value /= 1000), unit++;
      return `${Number(value.toPrecision(2))} ${units[unit]}`;
    };
    const microseconds = (value) => (value >= 1000 ? `${Number((value / 1000).toPrecision(2))} ms` : `${value} µs`);
    const facts = (i) => {
      const where = calls.m[i] < 0 ? outside : data.modules[calls.m[i]];
      const layout = calls.c[i] < 0 ? "layout not known" : data.classes[calls.c[i]];
      const paid = calls.k[i] ? `${calls.k[i]} ${calls.k[i] === 1 ? "copy" : "copies"}, ${bytes(calls.b[i])}` : "";
      return {
        name: `${data.names[calls.n[i]]}${calls.w[i] ? " (backward)" : ""}`,
        rest: [layout, data.shapes[calls.z[i]], paid, where, microseconds(calls.d[i])].filter(Boolean),
        site: calls.p[i] < 0 ? "" : data.sites[calls.p[i]],
        card: calls.p[i] < 0 ? "" : data.cards[calls.p[i]],
      };
    };
    const inspect = (i) => {
      const fact = facts(i);
      const name = document.createElement("strong");
      name.textContent = fact.name;
      $("map-inspector").replaceChildren(name, ` · ${fact.rest.join(" · ")}`);
      if (fact.site) {
        const place = document.createElement("code");
        place.textContent = fact.site;
        $("map-inspector").append(document.createElement("br"), place);
      }
      if (fact.card && $(fact.card)) {
        const link = document.createElement("a");
        link.href = `#${fact.card}`;
        link.textContent = "its finding";
        $("map-inspector").append(" ", link);
      }
    };
    const short = (name, room) => (name.length > room ? `…${name.slice(1 - room)}` : name);

    const draw = () => {
      const range = view ?? bounds();
      const { z, x, step } = cells(range);
      const steps = colours();
      const last = steps.length - 1;
      const narrow = plot.clientWidth < NARROW;
      const rowHeight = Math.min(Math.max(900 / rows.names.length, 4), 19);
      const height = Math.max(rows.names.length * rowHeight + 70, 190);
      const copies = marks(range, Math.ceil(9 / rowHeight));
      const labelled = rows.names.map((_, index) => index).filter((index) => index % Math.ceil(12 / rowHeight) === 0);
      const heat = {
        type: "heatmap", z, x, y: rows.names.map((_, index) => index), zmin: -0.5, zmax: last + 0.5,
        colorscale: steps.flatMap((colour, index) => [[index / steps.length, colour], [(index + 1) / steps.length, colour]]),
        showscale: false, hoverinfo: "none", xgap: byTime() || x.length * 4 > plot.clientWidth ? 0 : 1, ygap: rowHeight > 8 ? 2 : 0, zsmooth: false, dx: step,
      };
      const scatter = {
        type: "scatter", mode: "markers", x: copies.x, y: copies.y, customdata: copies.call, hoverinfo: "none", cliponaxis: false,
        marker: { symbol: "diamond", size: copies.size, color: token("copy"), opacity: 1, line: { width: 1.2, color: token("ground") } },
      };
      const layout = base({
        width: plot.clientWidth, height, margin: { l: 8, r: 12, t: 8, b: 42 }, showlegend: false, dragmode: "zoom", hovermode: "closest",
        xaxis: {
          range, minallowed: bounds()[0], maxallowed: bounds()[1], showgrid: false, zeroline: false, color: token("quiet"),
          title: { text: byTime() ? "time in the step, ms" : "calls, in order", font: { size: 12 } },
          ...(byTime() ? ticks(range) : { tickformat: ",d" }),
        },
        yaxis: {
          range: [rows.names.length - 0.5, -0.5], fixedrange: true, showgrid: false, zeroline: false, automargin: true,
          tickvals: labelled, ticktext: labelled.map((index) => literal(short(rows.names[index], narrow ? 16 : 34))),
          tickfont: { size: rows.names.length > 48 ? 9 : 11, family: "ui-monospace, Menlo, Consolas, monospace" }, color: token("quiet"),
        },
      });
      const cursor = {
        type: "scatter", mode: "markers", hoverinfo: "skip", cliponaxis: false,
        x: here < 0 ? [] : [(start(here) + end(here)) / 2], y: here < 0 ? [] : [rows.row[here]],
        marker: { symbol: "square-open", size: 17, color: token("accent"), line: { width: 2.5 } },
      };
      return Plotly.react(plot, [heat, scatter, cursor], layout, config);
    };
    const ticks = ([from, to]) => {
      const rough = (to - from) / 6;
      const power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= rough);
      const values = [];
      for (let value = Math.ceil(from / step) * step; value <= to; value += step) values.push(value);
      return { tickvals: values, ticktext: values.map((value) => Number((value / 1000).toPrecision(4)).toString()) };
    };
    const callOf = (event) => {
      const point = event.points[0];
      return point.customdata ?? owner[point.pointIndex?.[0]]?.[point.pointIndex?.[1]] ?? -1;
    };
    const goTo = (call) => {
      here = call;
      const [from, to] = view ?? bounds();
      const middle = (start(call) + end(call)) / 2;
      if (middle < from || middle > to) {
        const first = Math.min(Math.max(middle - (to - from) / 2, bounds()[0]), bounds()[1] - (to - from));
        view = [first, first + to - from];
      }
      inspect(call);
      draw();
    };
    const zoom = (factor) => {
      const [from, to] = view ?? bounds();
      const [least, most] = bounds();
      const middle = here < 0 ? (from + to) / 2 : (start(here) + end(here)) / 2;
      const half = Math.min(((to - from) * factor) / 2, (most - least) / 2);
      if (half * 2 < (byTime() ? 10 : 4)) return;
      const first = Math.min(Math.max(middle - half, least), most - 2 * half);
      view = [first, first + 2 * half];
      draw();
    };
    const copying = (by) => {
      for (let i = here + by; i >= 0 && i < count; i += by) if (calls.k[i]) return i;
      return -1;
    };
    const mapKeys = {
      ArrowRight: () => here < count - 1 && goTo(here + 1),
      ArrowLeft: () => here > 0 && goTo(here - 1),
      ArrowDown: () => copying(1) >= 0 && goTo(copying(1)),
      ArrowUp: () => copying(-1) >= 0 && goTo(copying(-1)),
      "+": () => zoom(0.5),
      "-": () => zoom(2),
      0: () => ((view = null), draw()),
      Enter: () => $("map-inspector").querySelector("a")?.click(),
    };
    plot.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !mapKeys[event.key]) return;
      event.preventDefault();
      mapKeys[event.key]();
    });

    const drawn = draw().then(() => {
      let pinned = false;
      const show = (event) => {
        const call = callOf(event);
        if (call >= 0) inspect(call);
      };
      plot.on("plotly_hover", (event) => pinned || show(event));
      plot.on("plotly_click", (event) => {
        pinned = true;
        show(event);
      });
      plot.on("plotly_relayout", (change) => {
        if (change["xaxis.range[0]"] === undefined) return;
        view = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
        pinned = false;
        draw();
      });
      plot.on("plotly_doubleclick", () => ((view = null), draw()));
    });
    $("map-axis").addEventListener("change", () => ((view = null), draw()));
    select.addEventListener("change", () => ((rows = rowsAt(Number(select.value))), draw()));
    $("map-reset").addEventListener("click", () => ((view = null), draw()));
    redraw.push(draw);
    if (data.left) {
      const note = document.createElement("p");
      note.className = "gloss";
      note.textContent = `The first ${count.toLocaleString("en")} calls of the step; ${data.left.toLocaleString("en")} more are left out.`;
      $("map-section").append(note);
    }
    return drawn;
  };

  const drawIcicle = (data) => {
    const draw = () => {
      const shades = isDark() ? ["#24496e", "#2f5d50", "#6b4f17", "#5b3f63"] : ["#cfe0f1", "#cfe8dd", "#f4e2bf", "#ead6ea"];
      const trace = {
        type: "icicle", ids: data.ids, labels: data.labels.map(literal), parents: data.parents, values: data.values, branchvalues: "total",
        tiling: { orientation: "v" }, root: { color: token("panel") }, sort: true, maxdepth: 6,
        marker: { line: { width: 1, color: token("ground") } },
        textinfo: "label+percent root", hovertemplate: "%{label}<br>%{value:.3s}B a step, %{percentRoot:.1%}<extra></extra>",
        insidetextfont: { color: token("text") },
      };
      return Plotly.react($("icicle"), [trace], base({ width: $("icicle").clientWidth, height: 380, margin: { l: 4, r: 4, t: 4, b: 4 }, iciclecolorway: shades, uniformtext: { minsize: 10, mode: "hide" } }), config);
    };
    redraw.push(draw);
    return draw();
  };

  if (!canUnpack) return;
  load().then(async (charts) => {
    for (const [name, drawChart] of [["map", drawMap], ["icicle", drawIcicle]]) {
      if (!charts[name]) continue;
      $(`${name}-section`).hidden = false;
      try {
        await drawChart(charts[name]);
      } catch (error) {
        $(`${name}-section`).hidden = true; // the rest of the page has what it shows
        console.error(error);
      }
    }
    root.dataset.drawn = "true";
  });
})();
