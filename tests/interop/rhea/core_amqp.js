// @azure/core-amqp asks $management with its RequestResponseLink: `ask HOST:PORT`, one line for each type.
'use strict';
const {RequestResponseLink} = require('@azure/core-amqp');
const {Connection} = require('rhea-promise');
const [, place] = process.argv.slice(2);
const [host, port] = place.split(':');

async function main() {
  const connection = new Connection({host, port: Number(port), reconnect: false});
  await connection.open();
  const source = {source: {address: '$management'}, target: {address: 'answers'}};
  const link = await RequestResponseLink.create(connection, {target: {address: '$management'}}, source);
  const asked = {body: {}, reply_to: 'answers', application_properties: {operation: 'GET-TYPES'}};
  const answer = await link.sendRequest(asked);
  console.log(Object.keys(answer.body).join('\n'));
  await connection.close();
}
main().catch((error) => { console.log(String(error)); process.exit(1); });
