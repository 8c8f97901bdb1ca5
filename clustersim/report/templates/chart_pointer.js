// What a chart tells where the pointer or the keyboard points, and how it zooms.
//
// A chart with a time or a value along x tells every curve at that x; one of rows, the whole row; one of many
// points, the nearest. Drag to zoom, double-click for all; keys: arrows, + and −, 0 for all, Escape. A click is
// an event "pick" of the box, with the value of x.
(function () {
  "use strict";
  const MOST_ROWS = 12, NEAR = 30, LEAST_DRAG = 8, LEAST_HEIGHT = 30, KEY_STEPS = 40;

  // The last place at or before a value in growing numbers; -1 before the first.
  function before(numbers, value) {
    let low = 0, high = numbers.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (numbers[middle] <= value) { low = middle + 1; } else { high = middle; }
    }
    return low - 1;
  }

  function nearest(numbers, value) {
    let best = -1;
    numbers.forEach((number, i) => { if (best < 0 || Math.abs(number - value) < Math.abs(numbers[best] - value)) { best = i; } });
    return best;
  }

  // What a series says at one of its points: its template, or the value; with the interval, where one is known.
  function words(series, i) {
    const template = series.hover || "{y:1}";
    const text = charts.words(template, { x: series.x[i], y: series.y[i], text: (series.text || [])[i] });
    const low = (series.low || [])[i] ?? null, high = (series.high || [])[i] ?? null;
    if (low === null || high === null) { return text; }
    const decimals = Number((/\{[xy]:\+?(\d)/.exec(template) || [0, 1])[1]), signed = /:\+/.test(template);
    return `${text} (${charts.number(low, decimals, signed)} to ${charts.number(high, decimals, signed)})`;
  }

  // The rows that a place tells: {series, text, at: pixels, bold}.
  function rowsAt(plot, one, x, y) {
    const shown = plot.visible(one.panel), told = [];
    if (plot.rows) {
      const row = Math.max(0, Math.min(one.axis.names.length - 1, Math.floor((y - one.top) / (one.bottom - one.top) * one.axis.names.length)));
      let from = 0;
      shown.forEach((series, number) => series.ys.forEach((at, i) => {
        if (at !== row) { return; }
        const to = from + series.xs[i], value = plot.x.value(x);
        const bold = series.kind === "bars" && shown.length > 1 && value >= from && value < to;
        told.push({ series, text: words(series, i), at: plot.place(one, series, i, number, shown.length), bold });
        from = to;
      }));
      return { head: one.axis.names[row], told };
    }
    if (shown.some((series) => series.kind === "points")) {
      let best = null;
      shown.forEach((series) => series.xs.forEach((_, i) => {
        const at = plot.place(one, series, i, 0, 1), far = Math.hypot(at[0] - x, at[1] - y);
        if (far < NEAR && (!best || far < best.far)) { best = { series, text: words(series, i), at, far }; }
      }));
      return { head: "", told: best ? [best] : [] };
    }
    const value = plot.x.value(x), names = plot.chart.x.kind === "names", name = Math.round(value);
    shown.forEach((series, number) => {
      const steps = ["steps", "area"].includes(series.kind);
      const i = names ? series.xs.indexOf(name) : steps ? Math.max(before(series.xs, value), 0) : nearest(series.xs, value);
      if (i < 0 || !series.xs.length) { return; }
      const at = plot.place(one, series, i, number, shown.length);
      told.push({ series, text: words(series, i), at: [steps ? Math.max(at[0], Math.min(x, plot.x.at(series.xs[series.xs.length - 1]))) : at[0], at[1]] });
    });
    const plain = plot.chart.x.kind !== "log" && !names && !shown.some((series) => series.text);
    const moment = plot.chart.x.kind === "date" ? `${new Date(value).toISOString().slice(0, 16).replace("T", " ")}` : `${charts.number(value, 1)} ${plot.chart.x.title}`;
    return { head: names ? plot.chart.x.names[name] : plain ? moment : "", told };
  }

  // Tell what stands at a place: a line, dots on the curves, and a box of texts.
  function tell(plot, x, y) {
    const one = plot.panels.reduce((best, panel) => y >= panel.top - 20 ? panel : best, plot.panels[0]);
    const sides = plot.panels.length > 1 && plot.panels.length * one.panel.series.length <= MOST_ROWS ? plot.panels : [one];
    const slices = sides.map((panel) => ({ panel, ...rowsAt(plot, panel, x, y) }));
    clear(plot);
    if (!slices.some((slice) => slice.told.length)) { return; }
    plot.pointed = [x, y];
    const over = charts.svg("g", { "class": "pointed" }, plot.over), curves = !plot.rows && slices[0].told.some((row) => ["steps", "area", "line"].includes(row.series.kind));
    if (curves) {
      charts.svg("path", { d: `M${charts.px(x)} ${plot.panels[0].top}V${charts.px(plot.panels[plot.panels.length - 1].bottom)}` }, over);
    }
    plot.tip.replaceChildren();
    if (slices[0].head) { charts.element("b", {}, plot.tip, slices[0].head); }
    slices.forEach((slice) => {
      let rows = slice.told;
      if (rows.length > MOST_ROWS) {
        const near = [...rows].sort((a, b) => Math.abs(a.at[1] - y) - Math.abs(b.at[1] - y)).slice(0, MOST_ROWS);
        rows = rows.filter((row) => near.includes(row));
      }
      const { title } = slice.panel.panel;
      if (sides.length > 1 && rows.length > 1) { charts.element("b", {}, plot.tip, title); }
      rows.forEach((row) => {
        const line = charts.element("div", { "class": row.bold ? "bold" : "" }, plot.tip);
        line.append(charts.swatch(row.series));
        charts.element("span", {}, line, [row.series.name || title, row.text].filter(Boolean).join(": "));
        if (row.series.kind === "bars" || title) { return; }
        const dot = charts.svg("circle", { cx: charts.px(row.at[0]), cy: charts.px(row.at[1]), r: row.series.kind === "steps" ? 4 : 8, "class": row.series.kind === "steps" ? "dot" : "ring" }, over);
        dot.style.setProperty("--shade", `var(${row.series.colour || `--c${row.series.look % 8}`})`);
      });
    });
    plot.tip.hidden = false;
    const room = plot.box.clientWidth, wide = plot.tip.offsetWidth;
    const beside = x + 14 + wide <= room ? x + 14 : x - 14 - wide;
    plot.tip.style.left = `${Math.max(0, Math.min(beside, room - wide))}px`;
    plot.tip.style.top = `${plot.bar.offsetHeight + Math.max(0, Math.min(y + 14, plot.height - plot.tip.offsetHeight))}px`;
  }

  function clear(plot) {
    plot.tip.hidden = true;
    plot.pointed = null;
    plot.over.querySelector(".pointed")?.remove();
  }

  // Zoom by a factor around the middle, or around the place that is pointed at.
  function closer(plot, factor) {
    const at = (plot.pointed || [(plot.x.from + plot.x.to) / 2])[0];
    const ends = [plot.x.from, plot.x.to].map((end) => plot.x.value(at + (end - at) * factor));
    if (plot.chart.x.kind !== "names") { plot.look({ ...plot.zoom, x: ends }); }
  }

  function keys(plot, event) {
    const [x, y] = plot.pointed || [plot.x.from, plot.panels[0].top], one = plot.panels[0];
    const across = plot.chart.x.kind === "names" ? (plot.x.to - plot.x.from) / plot.chart.x.names.length : (plot.x.to - plot.x.from) / KEY_STEPS;
    const down = (one.bottom - one.top) / (plot.rows ? one.axis.names.length : 8);
    const moved = { ArrowLeft: [-across, 0], ArrowRight: [across, 0], ArrowUp: [0, -down], ArrowDown: [0, down] }[event.key];
    if (moved) {
      const last = plot.panels[plot.panels.length - 1].bottom;
      const first = plot.pointed ? [x + moved[0], y + moved[1]] : [x + across / 2, y + down / 2];
      tell(plot, Math.max(plot.x.from, Math.min(plot.x.to, first[0])), Math.max(one.top, Math.min(last - 1, first[1])));
    } else if (event.key === "+" || event.key === "=") { closer(plot, 0.6);
    } else if (event.key === "-") { closer(plot, 1 / 0.6);
    } else if (event.key === "0") { plot.look({});
    } else if (event.key === "Escape" && plot.pointed) { clear(plot);
    } else { return; }
    event.preventDefault();
  }

  charts.listen = (plot) => {
    const { root } = plot;
    let begun = null, frame = null;
    const place = (event) => {
      const box = root.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    root.addEventListener("pointermove", (event) => {
      const [x, y] = place(event);
      if (begun) {
        const tall = wants(plot, begun, [x, y]).y, one = plot.panels[0], last = plot.panels[plot.panels.length - 1];
        frame = frame || charts.svg("rect", { "class": "chosen" }, plot.over);
        const [top, high] = tall ? [Math.min(y, begun[1]), Math.abs(y - begun[1])] : [one.top, last.bottom - one.top];
        for (const [name, value] of Object.entries({ x: Math.min(x, begun[0]), y: top, width: Math.abs(x - begun[0]), height: high })) { frame.setAttribute(name, value); }
        clear(plot);
      } else if (x >= plot.left - NEAR && x <= plot.width) { tell(plot, Math.max(x, plot.left), y); }
    });
    root.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") { clear(plot); } });
    root.addEventListener("blur", () => clear(plot));
    root.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse") { tell(plot, ...place(event)); return; }
      if (event.button || plot.chart.x.kind === "names") { return; }
      begun = place(event);
      root.setPointerCapture(event.pointerId);
      event.preventDefault();
      root.focus({ preventScroll: true });
    });
    root.addEventListener("pointerup", (event) => {
      if (!begun) { return; }
      const [x, y] = place(event), zoom = wants(plot, begun, [x, y]);
      begun = null;
      frame?.remove();
      frame = null;
      if (zoom.x) { plot.look({ ...plot.zoom, ...zoom });
      } else { plot.box.dispatchEvent(new CustomEvent("pick", { detail: plot.x.value(within(x, plot.x.from, plot.x.to)) })); }
    });
    root.addEventListener("dblclick", () => plot.look({}));
    root.addEventListener("keydown", (event) => { if (!event.ctrlKey && !event.metaKey && !event.altKey) { keys(plot, event); } });
  };

  const within = (value, low, high) => Math.max(low, Math.min(high, value));

  // The part of the axes that a drag asks for; of y only where it is tall, and the chart has one panel.
  function wants(plot, [x0, y0], [x1, y1]) {
    const made = {}, one = plot.panels[0], order = (a, b) => [Math.min(a, b), Math.max(a, b)];
    if (Math.abs(x1 - x0) >= LEAST_DRAG) { made.x = order(...[x0, x1].map((x) => plot.x.value(within(x, plot.x.from, plot.x.to)))); }
    if (plot.panels.length === 1 && !plot.rows && Math.abs(y1 - y0) >= LEAST_HEIGHT) {
      made.y = order(...[y0, y1].map((y) => one.y.value(within(y, one.top, one.bottom))));
    }
    return made;
  }
})();
