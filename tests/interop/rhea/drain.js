// node drain.js HOST PORT ADDRESS COUNT SELECTOR
// Two links, one of them with a selector. Prints the failover list, then what both have got when they drain, again and
// again until the first has COUNT messages and the other one.
'use strict';
const {rhea} = require('./common.js');
const [host, port, address, count, selector] = process.argv.slice(2);

const container = rhea.create_container({id: 'rhea-drain-' + process.pid});
const got = {all: [], selected: []};
const attached = [];
container.on('receiver_open', (context) => {
  attached.push(context.receiver);
  if (attached.length < 2) return;
  const listed = context.connection.properties['failover-server-list'];
  console.log(listed.map((each) => `${each['network-host']}:${each.port}`).sort().join(' '));
  for (const receiver of attached) drain(receiver);
});
function drain(receiver) {
  receiver.add_credit(10);
  receiver.drain_credit();
}
container.on('message', (context) => got[context.receiver.name].push(context.message.body));
let ended = false;
container.on('receiver_drained', (context) => {
  if (ended) return;
  if (got.all.length < Number(count) || got.selected.length < 1) {
    drain(context.receiver);
    return;
  }
  for (const name of Object.keys(got)) for (const body of got[name]) console.log(`${name}: ${body}`);
  console.log('drained');
  ended = true;
  setImmediate(() => context.connection.close());
});
for (const bad of ['receiver_error', 'session_error', 'connection_error']) {
  container.on(bad, (context) => {
    console.error(bad, context.error || '');
    process.exit(1);
  });
}
const connection = container.connect({host, port: Number(port), reconnect: false});
connection.open_receiver({name: 'all', source: {address}, credit_window: 0});
connection.open_receiver({name: 'selected', source: {address, filter: rhea.filter.selector(selector)}, credit_window: 0});
