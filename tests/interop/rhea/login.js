// node login.js HOST PORT CA [USER PASSWORD | CERTIFICATE]
// Connects through TLS, with PLAIN or EXTERNAL, and says which router it is connected to, or why not.
'use strict';
const fs = require('fs');
const rhea = require('rhea');
const [host, port, ca, first, second] = process.argv.slice(2);
const pem = (file) => fs.readFileSync(file);
const options = {host, port: Number(port), transport: 'tls', ca: [pem(ca)], reconnect: false, container_id: 'rhea-login'};
if (second) Object.assign(options, {username: first, password: second});
else Object.assign(options, {cert: pem(first), key: pem(first), enable_sasl_external: true});
const container = rhea.create_container();
container.on('connection_open', (context) => {
  console.log('connected to ' + context.connection.container_id);
  context.connection.close();
});
const refused = (error) => console.log('refused: ' + (error.description || error.message || error));
container.on('connection_error', (context) => refused(context.error || context.connection.error || 'no reason'));
container.on('error', refused);
container.on('disconnected', (context) => {
  if (context.error) refused(context.error);
});
container.connect(options);
