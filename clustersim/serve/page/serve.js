"use strict";
const $ = (id) => document.getElementById(id);
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#7b5cc4", "#8a5a2b", "#4c9a2a", "#c2185b"];
const CURVES_MS = 3000;
let run = null, stream = null, nodes = [], zero = null, shown = null, live = true, playing = null, asked = 0, boxes = [], chosen = null;

function made(tag, text, parent, kind) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (kind) element.className = kind;
  if (parent) parent.append(element);
  return element;
}
function button(text, act, parent) {
  const element = made("button", text, parent, "link");
  element.type = "button";
  element.addEventListener("click", act);
  return element;
}
function time(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const whole = Math.floor(Math.abs(seconds)), two = (n) => String(n).padStart(2, "0");
  const days = Math.floor(whole / 86400), rest = `${two(Math.floor(whole / 3600) % 24)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
  return (seconds < 0 ? "-" : "") + (days ? `${days} d ${rest}` : rest);
}
// A moment: a date where the trace states one, else the time since its zero.
function moment(seconds) {
  if (zero === null || seconds === null || seconds === undefined) return time(seconds);
  return new Date((zero + seconds) * 1000).toISOString().slice(0, 19).replace("T", " ");
}
function brief(seconds) { // without the year, which the clock shows
  return zero === null ? moment(seconds) : moment(seconds).slice(5);
}
function colour(job) {
  let hash = 7;
  for (let i = 0; i < job.length; i++) hash = (hash * 31 + job.charCodeAt(i)) >>> 0;
  return COLOURS[hash % COLOURS.length];
}
const path = (name) => name.split("/").map(encodeURIComponent).join("/");
async function get(address, options) {
  const answer = await fetch(address, options);
  const document = (answer.headers.get("content-type") || "").startsWith("application/json") ? await answer.json() : {error: await answer.text()};
  if (!answer.ok) throw new Error(document.error);
  return document;
}

// The picture of an instant

function draw(picture) {
  shown = picture;
  const ended = picture.ended, total = nodes.reduce((sum, size) => sum + size, 0);
  const numbers = {
    "Running": picture.running.length, "Waiting": picture.queue, "Finished": ended.finish,
    "GPUs in use": total ? `${+picture.used.toFixed(2)} of ${total}` : +picture.used.toFixed(2), "Events": picture.events,
  };
  if (ended.reject) numbers.Rejected = ended.reject;
  if (ended.fail) numbers.Failed = ended.fail;
  if (ended.served) numbers.Served = ended.served;
  if (picture.down.length) numbers["Nodes out of service"] = picture.down.length;
  numbers.State = picture.status;
  $("numbers").replaceChildren(...Object.entries(numbers).map(([name, value]) => {
    const pair = made("div");
    made("dt", name, pair);
    made("dd", value, pair);
    return pair;
  }));
  $("clock").textContent = moment(picture.time_s) + (zero === null ? "" : " UTC");
  const slider = $("slider");
  slider.min = picture.begin_s ?? 0;
  slider.max = picture.end_s ?? 1;
  if (document.activeElement !== slider || live) slider.value = picture.time_s ?? 0;
  slider.setAttribute("aria-valuetext", moment(picture.time_s));
  $("step").disabled = !live && picture.next_s === null;
  $("back").disabled = picture.before_s === null;
  rows($("running"), picture.running.slice(0, 300).map(([job, gpus, since]) => [job, [gpus, brief(since)]]));
  rows($("waiting"), picture.waiting.map(([job, gpus, submitted, since]) => [job, [gpus ?? "–", brief(submitted), brief(since)]]));
  $("latest").replaceChildren(...picture.latest.map(([at, event, job, gpus, detail]) => {
    const row = made("tr");
    made("td", brief(at), row);
    made("td", gpus ? `${event}, ${gpus} GPUs` : event, row);
    const cell = made("td", undefined, row);
    if (job) button(job, () => tell(job), cell);
    if (detail) made("small", ` ${detail}`, cell);
    return row;
  }));
  paint(picture);
  point(picture.time_s);
  document.documentElement.dataset.frames = 1 + +(document.documentElement.dataset.frames || 0);
}
function rows(body, found) { // rows of jobs that stay are kept, so that one can be clicked while frames arrive
  const old = new Map([...body.rows].map((row) => [row.dataset.job, row]));
  body.replaceChildren(...found.map(([job, cells]) => {
    let row = old.get(job);
    if (!row) {
      row = made("tr");
      row.dataset.job = job;
      button(job, () => tell(job), made("td", undefined, row));
      for (const cell of cells) made("td", cell, row);
    }
    cells.forEach((cell, i) => { row.cells[i + 1].textContent = cell; });
    return row;
  }).filter((row, i, all) => all.indexOf(row) === i));
}
function paint(picture) {
  const canvas = $("gpus"), held = new Map();
  let count = nodes.length;
  for (const [job, , , placement, part] of picture.running)
    for (const [node, gpus] of placement) {
      if (!held.has(node)) held.set(node, []);
      held.get(node).push([job, gpus, part]);
      count = Math.max(count, node + 1);
    }
  count = Math.min(count, 4096);
  const width = Math.max(200, canvas.parentElement.clientWidth), size = nodes.reduce((a, b) => Math.max(a, b), 8), ratio = window.devicePixelRatio || 1;
  const cell = count > 1024 ? 3 : count > 256 ? 5 : 8, columns = Math.max(1, Math.floor(width / (size * cell + 6)));
  const lines = Math.ceil(count / columns);
  canvas.width = width * ratio;
  canvas.height = lines * (cell * 1.5 + 6) * ratio;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${lines * (cell * 1.5 + 6)}px`;
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement), free = style.getPropertyValue("--free"), bad = style.getPropertyValue("--bad");
  pen.scale(ratio, ratio);
  boxes = [];
  const down = new Set(picture.down);
  for (let node = 0; node < count; node++) {
    const x = (node % columns) * (size * cell + 6), y = Math.floor(node / columns) * (cell * 1.5 + 6);
    pen.fillStyle = down.has(node) ? bad : free;
    pen.fillRect(x, y, (nodes[node] || size) * cell, cell * 1.5);
    let at = 0;
    for (const [job, gpus, part] of held.get(node) || []) {
      const wide = gpus * part * cell;
      pen.fillStyle = colour(job);
      pen.fillRect(x + at, y, Math.max(1, wide - 0.5), cell * 1.5);
      boxes.push([x + at, y, wide, cell * 1.5, job]);
      at += wide;
    }
  }
  canvas.setAttribute("aria-label", `${picture.running.length} jobs hold ${+picture.used.toFixed(2)} GPUs on ${held.size} nodes`);
}
$("gpus").addEventListener("click", (event) => {
  const hit = boxes.find(([x, y, wide, high]) => event.offsetX >= x && event.offsetX < x + wide && event.offsetY >= y && event.offsetY < y + high);
  if (hit) tell(hit[4]);
});

// The run over time, with a line at the instant that is shown

let plot = null, over = null, drawn = 0;
async function curves(name) {
  drawn = Date.now();
  try {
    const answer = await get(`/runs/${path(name)}/curves`);
    if (run !== name) return;
    over = answer;
    if (plot) plot.update(answer.chart);
    else plot = charts.show($("curves"), answer.chart);
    if (shown) point(shown.time_s);
  } catch (error) { $("link").textContent = error.message; }
}
function point(seconds) {
  if (plot && over && seconds !== null) plot.mark((seconds - over.from_s) / over.unit_s);
}
$("curves").addEventListener("pick", (event) => { stop(); look(over.from_s + event.detail * over.unit_s); });

// Time

function watch(name) {
  if (stream) stream.close();
  stop();
  run = name;
  live = true;
  nodes = [];
  shown = null;
  $("story").hidden = true;
  over = null;
  if (plot) plot.look({});
  const called = names.get(name) || name;
  $("title").textContent = called;
  location.hash = path(name);
  mark();
  stream = new EventSource(`/runs/${path(name)}/stream`);
  stream.addEventListener("cluster", (event) => {
    const stated = JSON.parse(event.data);
    nodes = stated.nodes;
    zero = stated.zero_s;
    if (stated.policy) $("title").replaceChildren(mark_of(stated.look), called.includes(stated.policy) ? called : `${called}, ${stated.policy}`);
  });
  stream.addEventListener("frame", (event) => {
    const picture = JSON.parse(event.data);
    $("link").textContent = "";
    if (!over || Date.now() - drawn > CURVES_MS) curves(name);
    if (live) draw(picture);
    else { $("slider").max = picture.end_s; if (shown && shown.next_s === null) shown.next_s = undefined; $("step").disabled = false; }
  });
  stream.addEventListener("over", (event) => {
    stream.close();
    $("link").textContent = JSON.parse(event.data).error || "";
    curves(name);
    refresh();
  });
  stream.addEventListener("error", () => { $("link").textContent = "The server does not answer. Runs go on."; });
}
async function look(at) {
  if (run === null) return;
  live = false;
  const mine = ++asked;
  try {
    const picture = await get(`/runs/${path(run)}/at?t=${at}`);
    if (mine === asked && !live) draw(picture);
  } catch (error) { $("link").textContent = error.message; stop(); }
}
function stop() {
  clearTimeout(playing);
  playing = null;
  $("play").textContent = "Play";
}
async function play() {
  if (!shown || playing === null) return;
  const slider = $("slider"), end = +slider.max, from = live ? +slider.min : shown.time_s ?? +slider.min;
  const next = Math.max(from + (end - +slider.min) / 300, live ? from : shown.next_s ?? from);
  await look(Math.min(next, end));
  if (playing === null) return;
  if (shown.next_s === null) stop();
  else playing = setTimeout(play, 120);
}
$("slider").addEventListener("input", () => { stop(); look($("slider").value); });
$("step").addEventListener("click", async () => {
  stop();
  if (!shown) return;
  if (shown.next_s === undefined) await look(shown.time_s);
  if (typeof shown.next_s === "number") look(shown.next_s);
});
$("back").addEventListener("click", () => { stop(); if (shown && shown.before_s !== null) look(shown.before_s); });
$("live").addEventListener("click", () => { if (run !== null) watch(run); });
$("play").addEventListener("click", () => {
  if (playing !== null) { stop(); return; }
  if (!shown) return;
  $("play").textContent = "Pause";
  playing = 0;
  play();
});

// The story of a job

async function tell(job) {
  const mine = chosen = job;
  try {
    const story = await get(`/runs/${path(run)}/job?id=${encodeURIComponent(job)}`);
    if (mine !== chosen) return;
    $("of-job").textContent = `Job ${story.job}`;
    const r = story.record;
    $("record").textContent = r ? [r.state, r.model, r.tenant, r.jct_s === null ? "" : `${time(r.jct_s)} in all`, `${time(r.wait_s)} of waiting`,
      `${time(r.paid_s)} of overheads`, r.lost_work_s ? `${time(r.lost_work_s)} of work lost` : "", r.reason].filter(Boolean).join(", ") : "So far:";
    $("events").replaceChildren(...story.events.map(([at, event, gpus, placement, plan, overhead, detail]) => {
      const words = [`${moment(at)} ${event}`, gpus ? `${gpus} GPUs` : "", placement ? `nodes ${placement}` : "", plan ? `plan ${plan}` : "", overhead ? `${+overhead.toFixed(1)} s of overhead` : "", detail];
      const item = made("li", words.filter(Boolean).join(", "));
      for (const wait of story.waits.filter((w) => w.from_s === at && ["submit", "preempt", "interrupt"].includes(event)))
        made("div", `waited ${time(wait.to_s - wait.from_s)} for ${wait.needed} GPUs; ${wait.free[0]} to ${wait.free[1]} were free; ${wait.ahead} jobs were ahead`
          + (wait.holders.length ? `; GPUs were held by ${wait.holders.join(", ")}` : "") + (wait.overtakers.length ? `; overtaken by ${wait.overtakers.join(", ")}` : ""), item);
      return item;
    }));
    $("story").hidden = false;
    $("story").scrollIntoView({block: "nearest"});
  } catch (error) { $("link").textContent = error.message; }
}

// Runs and the form

let listed = "";
const names = new Map(); // what the page calls a run, by its path
function mark_of(look) {
  const dot = made("span", undefined, null, "look");
  dot.style.background = `var(--c${look % 8})`;
  return dot;
}
function mark() {
  for (const link of $("runs").querySelectorAll("button")) link.setAttribute("aria-current", link.dataset.run === run);
}
async function refresh() {
  let state;
  try { state = await get("/state"); } catch (error) { $("link").textContent = "The server does not answer. Runs go on."; return; }
  const text = JSON.stringify(state);
  if (text === listed) return;
  const before = new Set(listed ? JSON.parse(listed).runs.map((each) => each.path) : []);
  listed = text;
  $("folder").textContent = state.folder;
  for (const each of state.runs) names.set(each.path, each.cell ? `${each.path.split("/cells/")[0]}: ${each.cell}` : each.path);
  fill("runs", state.runs, (each, item) => {
    if (each.policy) item.append(mark_of(each.look));
    button(names.get(each.path), () => watch(each.path), item).dataset.run = each.path;
    const named = each.policy && !each.path.endsWith(each.policy) && !each.cell.includes(`policy ${each.policy}`);
    made("small", named ? ` ${each.policy}, ${each.status}` : ` ${each.status}`, item);
  });
  mark();
  fill("reports", state.reports, (each, item) => {
    const link = made("a", each, item);
    link.href = `/reports/${path(each)}`;
    link.target = "_blank";
    link.rel = "noopener";
  });
  fill("commands", state.commands, (each, item) => {
    made("span", `${each.name}: ${each.status} `, item);
    if (each.status === "running") button("stop", () => post("/stop", {name: each.name}), item);
    if (each.printed) made("pre", each.printed, item);
  });
  const traces = document.forms.start.trace, kept = traces.value;
  traces.replaceChildren(...state.traces.map((name) => new Option(name, name, false, name === kept)));
  const wanted = decodeURIComponent(location.hash.slice(1));
  if (run === null && state.runs.some((each) => each.path === wanted)) watch(wanted);
  const fresh = state.runs.find((each) => started && each.path.startsWith(`${started}/`) && !before.has(each.path));
  if (fresh) { started = null; watch(fresh.path); }
}
function fill(id, found, write) {
  $(id).replaceChildren(...found.map((each) => { const item = made("li"); write(each, item); return item; }));
  if (!found.length) made("li", "none", $(id));
}
let started = null;
async function post(address, settings) {
  const answer = await get(address, {method: "POST", headers: {"content-type": "application/json"}, body: JSON.stringify(settings)});
  refresh();
  return answer;
}
const form = document.forms.start;
function fit() {
  const kind = form.kind.value;
  for (const label of form.querySelectorAll(".of-trace")) label.hidden = kind === "demo";
  for (const label of form.querySelectorAll(".of-demo")) label.hidden = kind !== "demo";
  for (const label of form.querySelectorAll(".of-vary")) label.hidden = kind !== "what-if";
}
form.kind.addEventListener("change", fit);
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const kind = form.kind.value, words = (text) => text.split(/[;\s]+/).filter(Boolean);
  const settings = {kind, name: form.elements.name.value, cluster: form.cluster.value, seed: +form.seed.value,
    policies: [...form.policies.selectedOptions].map((option) => option.value)};
  if (kind === "demo") Object.assign(settings, {jobs: +form.jobs.value, load: +form.load.value});
  else Object.assign(settings, {trace: form.trace.value, set: words(form.elements.set.value)});
  if (kind === "what-if") settings.vary = words(form.vary.value);
  $("refused").textContent = "";
  try { started = (await post("/start", settings)).name; refresh(); } catch (error) { $("refused").textContent = error.message; }
});
async function begin() {
  fit();
  const policies = await get("/policies");
  form.policies.replaceChildren(...policies.map(([name, summary]) => {
    const option = new Option(name, name, false, ["fifo", "srtf"].includes(name));
    option.title = summary;
    return option;
  }));
  const first = form.policies.selectedOptions[0];
  if (first) form.policies.scrollTop = first.offsetTop - form.policies.offsetTop;
  await refresh();
  document.documentElement.dataset.ready = "all";
  setInterval(refresh, 1000);
  addEventListener("resize", () => { if (shown) paint(shown); });
}
begin();
