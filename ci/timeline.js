'use strict';
// What ci/timeline does to a page that has been opened, appended to it: looks at what it shows first, then searches and
// points. The answers stand in an element of their own, one a line.
{
  const answers = document.createElement('pre');
  answers.id = 'answers';
  answers.textContent = '\n';
  document.body.append(answers);
  const tell = (name, value) => { answers.textContent += name + '=' + value + '\n'; };
  const details = () => $('details').textContent.replace(/\s+/g, ' ');

  const found = data.failures[failure];
  tell('opened-at', found?.check);
  if (found?.t != null) {
    const middle = (view.from + view.to) / 2, off = Math.abs(middle - (found.t + found.e) / 2) / (view.to - view.from);
    tell('centred', off < .02 && view.from < found.t && found.e < view.to);
    // The failure's line below the broker's incarnations is red where it happened.
    layOut();
    tell('pointed-failure', pick(x(found.t) + 1, y(0) + BROKER_LINE + 5)?.text);
  }
  tell('opened-details', details());
  const listed = document.querySelectorAll('.failure');
  listed[listed.length - 1]?.click();
  tell('clicked', data.failures[failure]?.check);

  $('search').value = 'failed: EIO';
  $('search').dispatchEvent(new Event('input'));
  tell('searched', $('hits').textContent + ': ' + details());
  const bite = data.bites.find(bite => bite.text.endsWith('failed: EIO'));
  if (bite) {
    chosen = null;
    layOut();
    const box = canvas.getBoundingClientRect(), row = 1 + tracks.indexOf(faultOf.get(bite.fault).track);
    const place = { clientX: box.left + x(bite.t), clientY: box.top + y(row) + FAULT_BAND + 6, bubbles: true };
    canvas.dispatchEvent(new PointerEvent('pointermove', place));
    tell('pointed', details());
  }
  tell('empty-lanes', data.lanes.filter((_, index) => !data.ops.some(op => op.l === index)).length);
  tell('lanes', data.lanes.map(lane => lane.name).join(', '));
}
