// This client under test: `onceway conformance -- node examples/rhea-exactly-once/conformance.js`. It reads orders from
// standard input and says what happens, a line each (docs/write-a-client.md).
'use strict';

const path = require('path');
const readline = require('readline');

const {Publisher, Subscriber} = require('./index.js');

const say = (...words) => console.log(words.join(' '));
const bodies = new Map();     // n -> body, of the messages of this life
const deliveries = new Map(); // body -> the delivery that is to be decided
let opened = null;            // the promise of the publisher or subscriber

function options(address) {
    return {
        urls: [process.env.ONCEWAY_URL], container: 'rhea-conformance', name: address, address,
        journal: path.join(process.env.ONCEWAY_STATE, 'journal'),
    };
}

function watched(link) {
    link.on('error', error => say('gave-up', error.message));
    return link;
}

const ORDERS = {
    publisher(address) {
        const on_outcome = (n, outcome) => {
            if (bodies.has(n)) say(outcome, bodies.get(n));
        };
        opened = Publisher.open({...options(address), on_outcome}).then(watched);
    },
    subscriber(address) {
        const on_message = delivery => {
            deliveries.set(String(delivery.body), delivery);
            say('received', delivery.body);
        };
        opened = Subscriber.open({...options(address), on_message}).then(watched);
        opened.then(subscriber => subscriber.on('told', () => say('missed')));
    },
    send: body => opened.then(publisher => bodies.set(publisher.publish(body), body)),
    accept: body => deliveries.get(body).accept(),
    reject: body => deliveries.get(body).reject(),
    release: body => deliveries.get(body).release(),
    stop: () => opened.then(link => link.close()).then(() => process.exit(0)),
};

say('client', 'publisher', 'subscriber', 'maps', 'journal');
readline.createInterface({input: process.stdin}).on('line', line => {
    const [order, ...words] = line.split(' ');
    ORDERS[order](...words);
});
