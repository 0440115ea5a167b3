// node links.js HOST PORT drain ADDRESS COUNT SELECTOR
//   Two links, one of them with a selector. Prints the failover list, then what both have got when they drain, again and
//   again until the first has COUNT messages and the other one.
// node links.js HOST PORT anonymous ADDRESS...
//   Sends to each address and to $cbs, three times, on one link without an address; prints each outcome with where it was sent.
// node links.js HOST PORT request ADDRESS COUNT
//   Asks COUNT times for a reply to a dynamic source, one request after the other, and prints the replies.
// node links.js HOST PORT resumed ADDRESS TIMEOUT HOST:PORT
//   Subscribes, there and at the other place in turn, and prints `onceway:resumed` of each answer, until it is killed.
'use strict';
const {rhea, connect, created} = require('./common.js');
const [host, port, what, ...given] = process.argv.slice(2);

const DOES = {
  drain(container, address, count, selector) {
    const got = {all: [], selected: []};
    const attached = [];
    const drain = (receiver) => {
      receiver.add_credit(10);
      receiver.drain_credit();
    };
    container.on('receiver_open', (context) => {
      attached.push(context.receiver);
      if (attached.length < 2) return;
      const listed = context.connection.properties['failover-server-list'];
      console.log(listed.map((each) => `${each['network-host']}:${each.port}`).sort().join(' '));
      attached.forEach(drain);
    });
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
    const connection = connect(container, host, port);
    connection.open_receiver({name: 'all', source: {address}, credit_window: 0});
    connection.open_receiver({name: 'selected', source: {address, filter: rhea.filter.selector(selector)}, credit_window: 0});
  },
  anonymous(container, ...addresses) {
    const list = [1, 2, 3].flatMap((n) => [...addresses, '$cbs'].map((to) => ({to, body: n})));
    let left = list.length;
    const sent = new Map(); // delivery id -> to
    container.once('sendable', ({sender, connection}) => {
      console.log(`offered ${connection.remote.open.offered_capabilities}`);
      for (const message of list) sent.set(sender.send(message).id, message.to);
    });
    for (const outcome of ['accepted', 'released', 'rejected']) {
      container.on(outcome, ({delivery, connection}) => {
        const error = delivery.remote_state.error;
        console.log(`${sent.get(delivery.id)} ${outcome}${error ? ' ' + error.condition : ''}`);
        if (--left === 0) connection.close();
      });
    }
    connect(container, host, port).open_sender({target: {}});
  },
  request(container, address, count) {
    let asked = 0;
    let replies, requests;
    const ask = () => {
      asked++;
      requests.send({body: 'request ' + asked, correlation_id: asked, reply_to: replies.source.address});
    };
    container.on('receiver_open', (context) => {
      replies = context.receiver;
      requests = context.connection.open_sender(address);
    });
    container.once('sendable', ask);
    container.on('message', (context) => {
      console.log(context.message.body);
      if (asked < Number(count)) ask();
      else setImmediate(() => context.connection.close());
    });
    connect(container, host, port).open_receiver({source: {dynamic: true}});
  },
  resumed(container, address, timeout, other) {
    const places = [[host, port], other.split(':')];
    let tries = 0;
    const next = () => {
      const [host, port] = places[tries++ % 2];
      return {connect: require('net').connect, host, port: Number(port), options: {}};
    };
    container.on('receiver_open', ({receiver}) => console.log(receiver.properties['onceway:resumed']));
    const connection = container.connect({connection_details: next, reconnect: 100});
    connection.open_receiver({name: 'resumed', source: {address, timeout: Number(timeout)}});
  },
};
DOES[what](created(what, what === 'request' ? ['rejected'] : []), ...given);
