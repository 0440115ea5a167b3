#!/usr/bin/env node
// Publish the lines of a file, each exactly once, and say when every subscriber has accepted them.
//
//     node publish.js --urls amqp://127.0.0.1:5672,amqp://127.0.0.1:5673 --address orders --journal orders.journal FILE
//
// Kill it and start it again: the journal knows which lines have been published. `--rate 100` publishes so many a second.
'use strict';

const fs = require('fs');
const {parseArgs} = require('util');
const {Publisher} = require('./index.js');

const IN_FLIGHT = 1000; // lines without an outcome

async function main() {
    const {values, positionals: [file]} = parseArgs({allowPositionals: true, options: {
        urls: {type: 'string', default: 'amqp://127.0.0.1:5672,amqp://127.0.0.1:5673,amqp://127.0.0.1:5674'},
        address: {type: 'string', default: 'orders'},
        container: {type: 'string', default: 'rhea-publisher'},
        journal: {type: 'string', default: 'publisher.journal'},
        rate: {type: 'string', default: '0'},
    }});
    const lines = fs.readFileSync(file, 'utf8').split('\n').filter(Boolean);
    const tally = {accepted: 0, rejected: 0, released: 0, undecided: 0};
    let wake = () => {};
    const publisher = await Publisher.open({
        urls: values.urls.split(','), address: values.address, container: values.container, name: values.address,
        journal: values.journal,
        on_outcome(n, outcome) {
            tally[outcome]++;
            if (outcome !== 'accepted') console.error(`line ${n + 1}: ${outcome}`);
            wake();
        },
    });
    for (const event of ['status', 'told']) publisher.on(event, text => console.error(`[${values.container}] ${text}`));
    publisher.on('error', error => {
        console.error(`[${values.container}] gave up: ${error.message}`);
        process.exit(1);
    });

    // Message n is line n: the journal's next number says where to go on.
    const pause_ms = Number(values.rate) ? 1000 / Number(values.rate) : 0;
    const began = Date.now(), first = publisher.next;
    while (publisher.next < lines.length || publisher.undecided.size || publisher.outcomes.size) {
        const due = pause_ms ? first + (Date.now() - began) / pause_ms : Infinity;
        while (publisher.next < Math.min(lines.length, due) && publisher.undecided.size < IN_FLIGHT) {
            publisher.publish(lines[publisher.next]);
        }
        await new Promise(resolve => {
            wake = resolve;
            setTimeout(resolve, pause_ms || 100);
        });
    }
    await publisher.close();
    console.log(Object.entries(tally).map(([outcome, count]) => `${outcome} ${count}`).join(', '));
}

main().then(() => process.exit(0));
