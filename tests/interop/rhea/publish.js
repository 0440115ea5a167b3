// node publish.js HOST PORT ADDRESS MODE COUNT|bodies|bytes|large [SIZE]
// Publishes COUNT small messages, or one of each kind, or one of SIZE bytes; ends when every outcome is there.
// Prints what a subscriber must see, one JSON line a message (its octets in hexadecimal for bytes), then `N accepted` (or `N sent` when pre-settled).
'use strict';
const {rhea, connect, created, MODES, messages, line, pattern} = require('./common.js');
const [host, port, address, mode, what, size] = process.argv.slice(2);

let list;
if (what === 'bodies' || what === 'bytes') list = Object.values(messages());
else if (what === 'large') list = [{body: rhea.message.data_section(pattern(Number(size)))}];
else list = Array.from({length: Number(what)}, (_, index) => ({message_id: index + 1, body: {sequence: index + 1}}));

let sent = 0;
let accepted = 0;
let ended = false;
const decided = new Set();
const lost = () => accepted + (mode === 'pre-settled' ? sent : 0) < list.length;
const container = created('publisher', ['rejected', 'released', 'modified'], lost);
function pump(sender) {
  if (ended) return;
  // sendable() counts what is on the wire, not what waits in rhea's own buffer, which a close would drop.
  let credit = sender.credit;
  for (; credit > 0 && sent < list.length && sender.sendable(); credit--) {
    sender.send(list[sent]);
    const octets = rhea.message.encode(list[sent]);
    if (what === 'bytes') console.log(octets.toString('hex'));
    else if (what !== 'large') console.log(line(rhea.message.decode(octets)));
    sent++;
  }
  const outgoing = sender.session.outgoing;
  const written = outgoing.next_pending_delivery === outgoing.next_delivery_id;
  if (mode === 'pre-settled' && sent === list.length && written) {
    ended = true;
    console.log(`${sent} sent`);
    sender.connection.close();
  } else if ((credit > 0 && sent < list.length) || (mode === 'pre-settled' && sent === list.length)) {
    setTimeout(() => pump(sender), 1); // its buffer of 2,048 is full, or the session's window is used up
  }
}
container.on('sendable', (context) => pump(context.sender));
container.on('accepted', (context) => {
  // In mode second the sender settles, once it knows the outcome; rhea says accepted again at the echo of that.
  if (decided.has(context.delivery.id)) return;
  decided.add(context.delivery.id);
  accepted++;
  if (mode === 'second') context.delivery.update(true);
  if (accepted === list.length) {
    console.log(`${accepted} accepted`);
    context.sender.close();
    context.connection.close();
  }
});
connect(container, host, port)
  .open_sender({target: {address}, ...MODES[mode], autosettle: mode !== 'second'});
