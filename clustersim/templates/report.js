(function () {
  "use strict";
  var COLOURS = 7;
  var DASHES = ["solid", "dash", "dot"];
  var charts = JSON.parse(document.getElementById("chart-data").textContent);

  function css(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function colour(series) {
    return css("--c" + (series % COLOURS));
  }

  function trace(series, rows) {
    var hover = series.text ? "%{y:.1f} % within %{text}" : "%{y:,.1f}";
    return {
      type: "scatter", mode: "lines", name: series.name, x: series.x, y: series.y, text: series.text,
      yaxis: series.yaxis || "y", fill: series.fill || "none", fillcolor: colour(series.series) + "40",
      line: {
        color: colour(series.series), shape: "hv", width: series.fill ? 1 : 2,
        dash: DASHES[Math.floor(series.series / COLOURS) % DASHES.length]
      },
      showlegend: !series.fill,
      hovertemplate: hover
    };
  }

  function axis(given, ink, rule) {
    var made = Object.assign({
      color: ink, gridcolor: rule, linecolor: rule, zeroline: false, automargin: true
    }, given);
    made.title = { text: (given.title || {}).text || "", font: { size: 13 }, standoff: 8 };
    return made;
  }

  function layout(chart, narrow) {
    var ink = css("--ink"), muted = css("--muted"), rule = css("--rule"), made = {};
    Object.keys(chart.layout).forEach(function (key) {
      made[key] = /^[xy]axis/.test(key) ? axis(chart.layout[key], muted, rule) : chart.layout[key];
    });
    made.annotations = (chart.layout.annotations || []).map(function (label) {
      return {
        text: label.text, x: 0, y: label.y, xref: "paper", yref: "paper", xanchor: "left", yanchor: "bottom",
        showarrow: false, font: { color: colour(label.series), size: 13 }
      };
    });
    return Object.assign(made, {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: ink },
      hoverlabel: { bgcolor: css("--band"), bordercolor: rule, font: { color: ink } },
      hovermode: "closest", dragmode: narrow ? false : "zoom",
      modebar: { bgcolor: "rgba(0,0,0,0)", color: muted, activecolor: ink },
      margin: { l: narrow ? 8 : 16, r: 8, t: 24, b: 48 },
      legend: { orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom" }
    });
  }

  function draw() {
    var narrow = window.matchMedia("(max-width: 40rem), (pointer: coarse)").matches;
    charts.forEach(function (chart) {
      window.Plotly.react(chart.id, chart.series.map(trace), layout(chart, narrow), {
        responsive: true, displaylogo: false, displayModeBar: narrow ? false : "hover",
        modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]]
      });
    });
  }

  draw();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
