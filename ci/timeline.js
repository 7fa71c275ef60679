'use strict';
// What ci/timeline does to a page that has been opened, appended to it: looks at what it shows first, then searches and
// points. The answers stand in an element of their own, one a line.
{
  const answers = document.createElement('pre');
  answers.id = 'answers';
  answers.textContent = '\n';
  document.body.append(answers);
  const say = (name, value) => { answers.textContent += name + '=' + value + '\n'; };
  const details = () => $('details').textContent.replace(/\s+/g, ' ');

  const found = data.failures[failure];
  say('opened-at', found?.check);
  if (found?.t != null) {
    const middle = (view.from + view.to) / 2, off = Math.abs(middle - (found.t + found.e) / 2) / (view.to - view.from);
    say('centred', off < .02 && view.from < found.t && found.e < view.to);
    // The failure's line below the broker's incarnations is red where it happened.
    layOut();
    say('pointed-failure', pick(x(found.t) + 1, y(0) + BROKER_LINE + 5)?.text);
  }
  say('opened-details', details());
  say('opened-card', document.querySelector('.failure.chosen')?.textContent);
  say('told-twice', found != null && details().includes(found.what));
  say('opened-view', [view.from / 1e6, view.to / 1e6, $('partition').selectedOptions[0].text, $('matches').textContent].join(' '));
  say('graph', graphPartition().join(' '));
  const listed = document.querySelectorAll('.failure');
  listed[listed.length - 1]?.click();
  say('clicked', data.failures[failure]?.check);

  $('search').value = 'failed: EIO';
  $('search').dispatchEvent(new Event('input'));
  say('searched', $('matches').textContent + ': ' + details());
  const hit = data.hits.find(hit => hit.text.endsWith('failed: EIO'));
  if (hit) {
    chosen = null;
    layOut();
    const box = canvas.getBoundingClientRect(), row = 1 + tracks.indexOf(faultOf.get(hit.fault).track);
    const place = { clientX: box.left + x(hit.t), clientY: box.top + y(row) + FAULT_BAND + 6, bubbles: true };
    canvas.dispatchEvent(new PointerEvent('pointermove', place));
    say('pointed', details());
  }
  // A send that was tried most often, with the last attempt pointed at; then from within its bar nothing crosses the view.
  const tried = data.ops.filter(op => op.n > 1).sort((a, b) => b.n - a.n)[0];
  if (tried) {
    const last = tried.a[tried.a.length - 1];
    [proof, matches, hovered] = [new Set(), [], null];
    pointed = last;
    keep(tried);
    say('attempts', details());
    pointed = null;
    chosen = null;
    show(tried.t, tried.e ?? tried.t, 0, 0);
    view.from += (view.to - view.from) / 3;
    const ends = [];
    const really = arrow;
    arrow = (x1, y1, x2) => ends.push(x1, x2);
    drawOps();
    arrow = really;
    say('arrows-across', ends.some(px => px < LEFT - .5 || px > canvas.clientWidth + .5));
  }
  say('empty-lanes', data.lanes.filter((_, index) => !data.ops.some(op => op.l === index)).length);
  say('lanes', data.lanes.map(lane => lane.name).join(', '));
}
