// The charts, drawn by plotly from the series of clustersim/report/charts.py.
(function () {
  "use strict";

  function colour(series) {
    return series.category ? page.css("--t-" + series.category) : page.seriesColour(series.series);
  }

  function line(series) {
    var shade = colour(series);
    return {
      type: "scatter", mode: "lines", name: series.name, x: series.x, y: series.y, text: series.text,
      yaxis: series.yaxis || "y", fill: series.fill || "none",
      fillcolor: shade + (series.faint ? "38" : "b0"),
      line: {
        color: series.faint ? shade + "80" : shade, shape: "hv", width: series.fill ? (series.faint ? 1 : 0) : 2,
        dash: series.fill ? "solid" : page.data.dashes[Math.floor((series.series || 0) / 8) % 8]
      },
      showlegend: !series.fill,
      hovertemplate: series.hover || "%{y:,.1f}"
    };
  }

  function bar(series) {
    return {
      type: "bar", orientation: "h", name: series.name, x: series.x, y: series.y, textposition: "none",
      text: series.text, marker: { color: colour(series), line: { width: 0.5, color: page.css("--paper") } },
      showlegend: false, width: 0.62, hovertemplate: "%{x:.1f} %, %{text}"
    };
  }

  function dots(series) {
    return {
      type: "scatter", mode: "markers", name: series.name, x: series.x, y: series.y, text: series.text,
      marker: { color: colour(series), size: 12, symbol: page.data.markers[page.marker(series.series || 0)] },
      hovertemplate: series.hover
    };
  }

  // Many points in one colour: they may hide each other, so they let light through.
  function points(series) {
    return {
      type: "scatter", mode: "markers", name: series.name, x: series.x, y: series.y, text: series.text,
      marker: { color: colour(series), size: 6, opacity: 0.45 }, showlegend: false, hovertemplate: series.hover
    };
  }

  // A line through means, with bars of intervals.
  function curve(series) {
    var made = line(series), shade = colour(series);
    made.mode = "lines+markers";
    made.line.shape = "linear";
    made.marker = { color: shade, size: 8, symbol: page.data.markers[page.marker(series.series || 0)] };
    made.error_y = { type: "data", array: series.error, color: shade, thickness: 1.2, width: 4 };
    return made;
  }

  // A difference with its interval, a row each.
  function effect(series) {
    return {
      type: "scatter", mode: "markers", name: series.name, x: series.x, y: series.y, showlegend: false,
      marker: { color: colour(series), size: 10, symbol: page.data.markers[page.marker(series.series || 0)] },
      error_x: { type: "data", symmetric: false, array: series.high, arrayminus: series.low, color: colour(series), width: 4 },
      hovertemplate: series.hover + "<extra></extra>"
    };
  }

  function axis(given, ink, rule) {
    var made = Object.assign({ color: ink, gridcolor: rule, linecolor: rule, zeroline: false, automargin: true }, given);
    made.title = { text: (given.title || {}).text || "", font: { size: 13 }, standoff: 8 };
    return made;
  }

  function layout(chart, narrow) {
    var ink = page.css("--ink"), muted = page.css("--muted"), rule = page.css("--rule"), given = chart.layout;
    var made = { barmode: given.barmode, scattermode: given.scattermode, scattergap: 0.4, shapes: [] };
    Object.keys(given).forEach(function (key) {
      if (/^[xy]axis/.test(key)) { made[key] = axis(given[key], muted, rule); }
    });
    var at = { type: "line", line: { color: muted, width: 1, dash: "dot" } };
    if (given.line_at !== undefined) { made.shapes.push(Object.assign({ x0: given.line_at, x1: given.line_at, y0: 0, y1: 1, yref: "paper" }, at)); }
    if (given.line_at_y) { made.shapes.push(Object.assign({ y0: 1, y1: 1, x0: 0, x1: 1, xref: "paper" }, at)); }
    if (given.diagonal) {
      var low = given.diagonal[0], high = given.diagonal[1];
      made.shapes.push(Object.assign({ x0: low, x1: high, y0: low, y1: high }, at));
    }
    made.annotations = (given.annotations || []).map(function (label) {
      return {
        text: label.text, x: 0, y: label.y, xref: "paper", yref: "paper", xanchor: "left", yanchor: "bottom",
        showarrow: false, font: { color: ink, size: 13 }
      };
    });
    return Object.assign(made, {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: narrow ? 11 : 13, color: ink },
      hoverlabel: { bgcolor: page.css("--band"), bordercolor: rule, font: { color: ink }, namelength: -1 },
      hovermode: "closest", dragmode: narrow ? false : "zoom",
      modebar: { bgcolor: "rgba(0,0,0,0)", color: muted, activecolor: ink },
      margin: { l: narrow ? 8 : 16, r: 12, t: 24, b: 48 },
      legend: { orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom", traceorder: "normal" }
    });
  }

  var KINDS = { bar: bar, dots: dots, points: points, curve: curve, effect: effect };

  // A chart is drawn when it comes near the screen, so that the page appears at once.
  page.charts = function () {
    var narrow = window.matchMedia("(max-width: 44rem), (pointer: coarse)").matches;
    var near = new Map();
    function draw(chart) {
      var made = chart.series.map(function (series) {
        return (KINDS[series.type] || line)(series);
      });
      near.set(chart.id, chart);
      var many = chart.series.some(function (series) { return series.quiet; });
      if (many) { made.forEach(function (one, i) { one.showlegend = false; one.visible = !chart.series[i].quiet; }); names(chart); }
      window.Plotly.react(chart.id, made, layout(chart, narrow), {
        responsive: true, displaylogo: false, displayModeBar: narrow ? false : "hover",
        modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]]
      });
    }
    // Names that show and hide curves, where there are too many for a legend.
    function names(chart) {
      var box = page.by(chart.id).parentElement.querySelector(".names");
      box.hidden = false;
      box.replaceChildren.apply(box, chart.series.map(function (series, i) {
        var button = page.make("button", "", { type: "button", "aria-pressed": !series.quiet });
        button.append(page.swatch(series.series), page.plain(series.name));
        button.addEventListener("click", function () {
          series.quiet = !series.quiet;
          button.setAttribute("aria-pressed", !series.quiet);
          window.Plotly.restyle(chart.id, { visible: !series.quiet }, [i]);
        });
        return button;
      }));
    }
    var watch = new IntersectionObserver(function (entries) {
      entries.filter(function (entry) { return entry.isIntersecting; }).forEach(function (entry) {
        watch.unobserve(entry.target);
        draw(page.data.charts.find(function (chart) { return chart.id === entry.target.id; }));
      });
    }, { rootMargin: "600px" });
    page.data.charts.forEach(function (chart) { watch.observe(page.by(chart.id)); });
    page.onTheme.push(function () { near.forEach(draw); });
    window.addEventListener("beforeprint", function () {
      page.data.charts.forEach(function (chart) { if (!near.has(chart.id)) { draw(chart); } });
    });
  };
})();
