'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const $ = id => document.getElementById(id);
const canvas = $('canvas'), ctx = canvas.getContext('2d');
const HEAD = 22, LEFT = 110, GRAPH = 150, LINES = 4;
// Rows share the height that there is.
let ROW = 26;
const lineHeight = () => (ROW - 5) / LINES;
const css = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
const colors = () => Object.fromEntries(['back', 'panel', 'text', 'faint', 'line', 'ok', 'maybe', 'failed', 'bad', 'read',
  'query', 'fault', 'starts', 'serves', 'stops', 'mark'].map(name => [name, css(name)]));
let palette = colors();

// What is shown: from..to in microseconds, and how far down.
const view = { from: 0, to: Math.max(data.end, 1), down: 0 };
let chosen = null, hovered = null, proof = new Set(), hits = [], hit = -1, failure = -1;

// What was found again and again stands there once, with how often.
{
  const known = new Map();
  for (const found of data.failures) {
    const name = found.check + '\n' + found.what;
    if (known.has(name)) known.get(name).times++; else known.set(name, { ...found, times: 1 });
  }
  data.failures = [...known.values()];
}

const key = op => op.k + op.i;
const byKey = new Map(data.ops.map(op => [key(op), op]));
data.ops.sort((a, b) => a.t - b.t);
const longest = data.ops.reduce((most, op) => Math.max(most, (op.e ?? op.t) - op.t), 0);

// Rows from top to bottom: broker, one for each track of faults, clients.
const tracks = [...new Set(data.faults.map(fault => fault.track))];
const rows = [{ kind: 'broker', name: 'broker' }, ...tracks.map(name => ({ kind: 'fault', name })),
  ...data.lanes.map((lane, index) => ({ kind: 'client', name: lane.name, index }))];
const clientRow = index => 1 + tracks.length + index;
// Bars that overlap in time stand below one another, as far as a row has room.
{
  const busy = data.lanes.map(() => []);
  for (const op of data.ops) {
    const lines = busy[op.l];
    let line = lines.findIndex(end => end <= op.t);
    if (line < 0) line = lines.length < LINES ? lines.length : op.i % LINES;
    lines[line] = op.e ?? op.t + 1000;
    op.line = line;
  }
}

const time = us => (us / 1e6).toFixed(us % 1000 && view.to - view.from < 1e5 ? 6 : 3) + ' s';
const x = t => LEFT + (t - view.from) / (view.to - view.from) * (canvas.clientWidth - LEFT);
const at = px => view.from + (px - LEFT) / (canvas.clientWidth - LEFT) * (view.to - view.from);
const y = row => HEAD + row * ROW - view.down;
const bottom = () => canvas.clientHeight - GRAPH;

function isShown(op) {
  const partition = +$('partition').value;
  if (proof.has(key(op))) return true;
  if (partition >= 0 && op.p !== partition) return false;
  if (op.k === 's') return $('show-sends').checked;
  return $('show-reads').checked && (op.s !== 'empty' || $('show-empty').checked);
}

function inView() {
  let low = 0, high = data.ops.length;
  const first = view.from - longest;
  while (low < high) { const middle = (low + high) >> 1; if (data.ops[middle].t < first) low = middle + 1; else high = middle; }
  const found = [];
  for (; low < data.ops.length && data.ops[low].t <= view.to; low++) {
    const op = data.ops[low];
    if ((op.e ?? data.end) >= view.from && isShown(op)) found.push(op);
  }
  return found;
}

function colorOf(op) {
  if (op.s === 'bad') return palette.bad;
  if (op.k === 's') return palette[op.s];
  return op.k === 'c' ? palette[op.s] : op.k !== 'r' ? palette.query : palette.read;
}

function bar(from, to, top, height, color, label, textColor) {
  const left = Math.max(x(from), LEFT), right = Math.min(Math.max(x(to), left + 1.5), canvas.clientWidth);
  if (right < LEFT || left > canvas.clientWidth) return;
  ctx.fillStyle = color;
  ctx.fillRect(left, top, right - left, height);
  if (label && right - left > 30) {
    ctx.save();
    ctx.beginPath(); ctx.rect(left, top, right - left - 2, height); ctx.clip();
    ctx.fillStyle = textColor ?? palette.text;
    ctx.fillText(label, left + 4, top + height / 2 + 4);
    ctx.restore();
  }
}

function drawGrid(width, height) {
  const span = view.to - view.from, wanted = span / Math.max(width / 110, 1);
  const power = 10 ** Math.floor(Math.log10(wanted)), step = [1, 2, 5, 10].map(n => n * power).find(n => n >= wanted);
  ctx.strokeStyle = palette.line; ctx.fillStyle = palette.faint;
  for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
    const px = Math.round(x(t)) + .5;
    ctx.beginPath(); ctx.moveTo(px, HEAD); ctx.lineTo(px, height); ctx.stroke();
    ctx.fillText((t / 1e6).toFixed(Math.max(0, Math.min(6, 6 - Math.floor(Math.log10(step))))) + ' s', px + 3, 14);
  }
  for (const event of data.events.filter(event => event.kind === 'phase')) {
    const px = x(event.t);
    if (px < LEFT || px > width) continue;
    ctx.strokeStyle = palette.text; ctx.setLineDash([4, 3]);
    ctx.beginPath(); ctx.moveTo(px, HEAD); ctx.lineTo(px, height); ctx.stroke(); ctx.setLineDash([]);
    ctx.fillStyle = palette.text; ctx.fillText(event.what, px + 3, bottom() - 6);
  }
}

function drawBroker() {
  const top = y(0) + 3;
  for (const life of data.lives) {
    const stop = life.stops ?? life.e, serve = life.serves ?? stop;
    bar(life.t, serve, top, ROW - 6, palette.starts, '');
    if (life.serves !== null) bar(life.serves, stop, top, ROW - 6, palette.serves, '#' + life.number);
    if (life.stops !== null) bar(life.stops, life.e, top, ROW - 6, palette.stops, '');
    if (life.end) {
      const px = x(life.e);
      if (px >= LEFT) { ctx.fillStyle = palette.bad; ctx.fillRect(px - 1, y(0), 2, ROW); }
    }
  }
}

function drawFaults(height) {
  for (const fault of data.faults) {
    const row = 1 + tracks.indexOf(fault.track);
    bar(fault.t, fault.e, y(row) + 3, ROW - 6, palette.fault, fault.what);
    const left = Math.max(x(fault.t), LEFT), right = Math.min(x(fault.e), canvas.clientWidth);
    if (right > LEFT && left < canvas.clientWidth) {
      ctx.globalAlpha = .07; ctx.fillStyle = palette.fault;
      ctx.fillRect(left, y(row), Math.max(right - left, 1), height - y(row)); ctx.globalAlpha = 1;
    }
  }
}

function arrow(x1, y1, x2, y2, color) {
  ctx.strokeStyle = ctx.fillStyle = color;
  ctx.beginPath(); ctx.moveTo(x1, y1); ctx.lineTo(x2, y2); ctx.stroke();
  const angle = Math.atan2(y2 - y1, x2 - x1);
  ctx.beginPath(); ctx.moveTo(x2, y2);
  ctx.lineTo(x2 - 5 * Math.cos(angle - .4), y2 - 5 * Math.sin(angle - .4));
  ctx.lineTo(x2 - 5 * Math.cos(angle + .4), y2 - 5 * Math.sin(angle + .4)); ctx.fill();
}

function drawOps() {
  const ops = inView(), arrows = $('show-arrows').checked && ops.length < 400, found = new Set(hits);
  const broker = y(0) + ROW - 3;
  for (const op of ops) {
    const top = y(clientRow(op.l)) + 3 + op.line * lineHeight(), thick = Math.max(lineHeight() - 1.5, 3), end = op.e ?? Math.min(op.t + (view.to - view.from) / 40, data.end);
    const strong = proof.has(key(op)) || op === chosen || op === hovered;
    const color = proof.has(key(op)) ? palette.mark : colorOf(op);
    ctx.globalAlpha = proof.size && !strong ? .35 : 1;
    bar(op.t, end, top, strong ? thick + 2 : thick, color);
    if (found.has(op)) { ctx.strokeStyle = palette.mark; ctx.strokeRect(x(op.t) - 2, top - 2, Math.max(x(end) - x(op.t), 2) + 4, thick + 4); }
    if (arrows || strong) {
      ctx.globalAlpha *= strong ? 1 : .45;
      const middle = (x(op.t) + x(end)) / 2;
      arrow(x(op.t), top, middle, broker, color);
      if (op.e != null) arrow(middle, broker, x(end), top + thick, color);
    }
    ctx.globalAlpha = 1;
    if (strong && op.o) { ctx.fillStyle = palette.text; ctx.fillText('offset ' + (op.o[0] === op.o[1] ? op.o[0] : op.o.join('…')), x(end) + 4, top + 8); }
  }
}

function drawNames(width) {
  ctx.fillStyle = palette.back; ctx.fillRect(0, HEAD, LEFT, bottom() - HEAD);
  rows.forEach((row, index) => {
    if (y(index) < HEAD - ROW || y(index) > bottom()) return;
    ctx.strokeStyle = palette.line;
    ctx.beginPath(); ctx.moveTo(0, y(index) + .5); ctx.lineTo(width, y(index) + .5); ctx.stroke();
    ctx.fillStyle = row.kind === 'client' ? palette.text : palette.faint;
    ctx.fillText(row.name, 8, y(index) + ROW / 2 + 4);
  });
}

// The partition of the graph: the one chosen, else that of the chosen failure, else the first.
function graphPartition() {
  const selected = +$('partition').value;
  if (selected >= 0) return selected;
  return data.failures[failure]?.partition ?? 0;
}

function drawGraph(width, height) {
  const top = bottom(), name = data.partitions[graphPartition()], steps = data.positions[name] ?? [];
  ctx.fillStyle = palette.back; ctx.fillRect(0, top, width, GRAPH);
  ctx.strokeStyle = palette.line; ctx.beginPath(); ctx.moveTo(0, top + .5); ctx.lineTo(width, top + .5); ctx.stroke();
  ctx.fillStyle = palette.faint; ctx.fillText(name ?? '', 8, top + 16);
  let first = 0;
  while (first + 1 < steps.length && steps[first + 1].t <= view.from) first++;
  const shown = steps.slice(first).filter(step => step.t <= view.to);
  if (!shown.length) { ctx.fillText('no positions', 8, top + 34); return; }
  const low = Math.min(...shown.map(step => Math.min(step.end, step.durable)));
  const high = Math.max(low + 1, ...shown.map(step => Math.max(step.end, step.durable)));
  const py = value => height - 12 - (value - low) / (high - low) * (GRAPH - 34);
  for (const [field, color, wide] of [['end', palette.maybe, 2.5], ['durable', palette.ok, 1.5]]) {
    ctx.strokeStyle = color; ctx.lineWidth = wide; ctx.beginPath();
    shown.forEach((step, index) => {
      const px = Math.max(x(step.t), LEFT);
      if (index) ctx.lineTo(px, py(shown[index - 1][field])); else ctx.moveTo(px, py(step[field]));
      ctx.lineTo(px, py(step[field]));
    });
    ctx.lineTo(Math.min(x(data.end), width), py(shown[shown.length - 1][field])); ctx.stroke(); ctx.lineWidth = 1;
  }
  ctx.fillStyle = palette.maybe; ctx.fillText('log end ' + high, 8, top + 34);
  ctx.fillStyle = palette.ok; ctx.fillText('durable', 8, top + 50);
  ctx.fillStyle = palette.faint; ctx.fillText('from ' + low, 8, height - 8);
  const found = data.failures[failure];
  if (found && found.partition === graphPartition() && found.offset >= low && found.offset <= high) {
    ctx.strokeStyle = palette.mark; ctx.setLineDash([2, 3]); ctx.beginPath();
    ctx.moveTo(LEFT, py(found.offset)); ctx.lineTo(width, py(found.offset)); ctx.stroke(); ctx.setLineDash([]);
    ctx.fillStyle = palette.mark; ctx.fillText('offset ' + found.offset, width - 90, py(found.offset) - 4);
  }
}

let pending = false;
function draw() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => {
    pending = false;
    const width = canvas.clientWidth, height = canvas.clientHeight, ratio = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
    }
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ROW = Math.min(Math.max((bottom() - HEAD) / rows.length, 26), 64);
    ctx.font = '11px system-ui, sans-serif';
    ctx.fillStyle = palette.back; ctx.fillRect(0, 0, width, height);
    drawGrid(width, height); drawFaults(bottom()); drawBroker(); drawOps(); drawNames(width); drawGraph(width, height);
    canvas.dataset.drawn = 'yes';
  });
}

function zoom(factor, around) {
  const least = 50;
  const span = Math.min(Math.max((view.to - view.from) * factor, least), data.end * 1.1);
  const share = (around - view.from) / (view.to - view.from);
  view.from = Math.max(around - span * share, -data.end * .05); view.to = view.from + span;
  draw();
}
function move(by) { view.from += by; view.to += by; draw(); }
function show(from, to, share = .25) {
  const margin = Math.max((to - from) * share, 2000);
  view.from = from - margin; view.to = to + margin; draw();
}

function describe(thing) {
  if (!thing) return 'Point at something; click to keep it here.';
  if (thing.text) return thing.text.replace(/, /g, ',\n  ');
  return thing.what + '\n  from ' + time(thing.t) + ' to ' + time(thing.e);
}

function pick(px, py) {
  const row = Math.floor((py - HEAD + view.down) / ROW), t = at(px), slack = (view.to - view.from) / (canvas.clientWidth - LEFT) * 3;
  if (py > bottom() || py < HEAD || px < LEFT) return null;
  const covers = thing => thing.t - slack <= t && (thing.e ?? thing.t) + slack >= t;
  if (row === 0) {
    const life = data.lives.findLast(covers);
    return life && { ...life, what: 'incarnation ' + life.number + (life.end ? '\n  ' + life.end : '') };
  }
  if (row <= tracks.length) return data.faults.findLast(fault => fault.track === tracks[row - 1] && covers(fault)) ?? null;
  const line = (py - y(row) - 3) / lineHeight();
  const found = inView().filter(op => clientRow(op.l) === row && covers(op));
  return found.sort((a, b) => Math.abs(a.line + .5 - line) - Math.abs(b.line + .5 - line))[0] ?? null;
}

function choose(index) {
  failure = index;
  const found = data.failures[index];
  document.querySelectorAll('.failure').forEach((node, at) => node.classList.toggle('chosen', at === index));
  proof = new Set(found ? found.proof.map(([kind, number]) => kind + number) : []);
  const ops = [...proof].map(name => byKey.get(name)).filter(Boolean);
  if (ops.length) {
    chosen = null;
    show(Math.min(...ops.map(op => op.t)), Math.max(...ops.map(op => op.e ?? op.t)));
    $('details').textContent = ops.map(op => describe(op)).join('\n\n');
  }
  draw();
}

function search() {
  const text = $('search').value.trim().toLowerCase();
  const number = /^(offset|value|send|read)\s+(\d+)$/.exec(text);
  const within = (range, n) => range && range[0] <= n && n <= range[1];
  const test = number && {
    offset: op => within(op.o, +number[2]), value: op => within(op.v, +number[2]),
    send: op => op.k === 's' && op.i === +number[2], read: op => op.k === 'r' && op.i === +number[2],
  }[number[1]];
  hits = text ? data.ops.filter(test ?? (op => op.text.toLowerCase().includes(text))) : [];
  hit = -1;
  $('hits').textContent = text ? hits.length + ' found' : '';
  if (hits.length) nextHit(); else draw();
}
function nextHit() {
  hit = (hit + 1) % hits.length;
  chosen = hits[hit];
  $('hits').textContent = (hit + 1) + ' of ' + hits.length;
  $('details').textContent = describe(chosen);
  show(chosen.t, chosen.e ?? chosen.t);
}

function setUp() {
  document.title = data.title;
  $('title').textContent = data.title;
  $('verdict').textContent = data.good ? 'passed' : data.failures.length + ' failures';
  $('verdict').classList.toggle('failed', !data.good);
  $('replay').textContent = data.replay;
  $('replay').onclick = () => navigator.clipboard?.writeText(data.replay);
  data.partitions.forEach((name, index) => $('partition').add(new Option(name, index)));
  const list = $('failures');
  data.failures.forEach((found, index) => {
    const node = document.createElement('div'), title = document.createElement('b'), what = document.createElement('span');
    node.className = 'failure' + (found.beyond ? ' beyond' : '');
    title.textContent = found.check + (found.times > 1 ? ' × ' + found.times : '') + (found.beyond ? ' (beyond promise)' : ''); what.textContent = found.what;
    node.append(title, what); node.onclick = () => choose(index); list.append(node);
  });
  if (!data.failures.length) list.textContent = data.summary;
  for (const event of data.events) {
    const node = document.createElement('li'), when = document.createElement('time');
    node.className = event.kind === 'failure' ? 'failure-event' : event.kind;
    when.textContent = time(event.t); node.title = event.what;
    node.append(when, event.what); node.onclick = () => show(event.t - 20000, event.t + 20000);
    $('events').append(node);
  }
}

canvas.addEventListener('wheel', event => {
  event.preventDefault();
  if (event.shiftKey) { view.down = Math.max(0, Math.min(view.down + event.deltaY, rows.length * ROW + HEAD - bottom())); draw(); }
  else zoom(1.0015 ** event.deltaY, at(event.offsetX));
}, { passive: false });
let drag = null;
canvas.addEventListener('pointerdown', event => { drag = { px: event.offsetX, py: event.offsetY, moved: false }; canvas.setPointerCapture(event.pointerId); });
canvas.addEventListener('pointermove', event => {
  if (drag && (drag.moved || Math.abs(event.offsetX - drag.px) > 3)) {
    move((drag.px - event.offsetX) / (canvas.clientWidth - LEFT) * (view.to - view.from));
    view.down = Math.max(0, Math.min(view.down + drag.py - event.offsetY, Math.max(0, rows.length * ROW + HEAD - bottom())));
    drag = { px: event.offsetX, py: event.offsetY, moved: true };
    return;
  }
  const found = pick(event.offsetX, event.offsetY);
  if (found !== hovered) { hovered = found; if (!chosen) $('details').textContent = describe(found); draw(); }
});
canvas.addEventListener('pointerup', event => {
  if (drag && !drag.moved) { chosen = pick(event.offsetX, event.offsetY); $('details').textContent = describe(chosen); draw(); }
  drag = null;
});
document.addEventListener('keydown', event => {
  if (event.target.tagName === 'INPUT' && event.target.type === 'search') { if (event.key === 'Enter' && hits.length) nextHit(); return; }
  const span = view.to - view.from, middle = (view.from + view.to) / 2;
  const action = {
    ArrowLeft: () => move(-span / 5), ArrowRight: () => move(span / 5), '+': () => zoom(.6, middle), '=': () => zoom(.6, middle),
    '-': () => zoom(1 / .6, middle), 0: () => show(0, data.end, .01),
    n: () => hits.length ? nextHit() : data.failures.length && choose((failure + 1) % data.failures.length),
  }[event.key];
  if (action) { event.preventDefault(); action(); }
});
for (const id of ['partition', 'show-sends', 'show-reads', 'show-empty', 'show-arrows']) $(id).addEventListener('change', draw);
$('search').addEventListener('input', search);
$('fit').addEventListener('click', () => show(0, data.end, .01));
addEventListener('resize', draw);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { palette = colors(); draw(); });
setUp();
if (data.failures.some(found => found.proof.length)) choose(data.failures.findIndex(found => found.proof.length)); else show(0, data.end, .01);
