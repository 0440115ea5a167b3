// node login.js CASES
// CASES is a list of {port, ca, user, password, certificate, token, servername} as JSON. Tries each in turn through TLS, with
// PLAIN, EXTERNAL or OAUTHBEARER, and says in a line of JSON which router it is connected to, or why not, when it began,
// and how long it took.
'use strict';
const fs = require('fs');
const rhea = require('rhea');
const [cases] = process.argv.slice(2);
const pem = (file) => fs.readFileSync(file);

// RFC 7628, 3.1 and 3.2.3: what the client says first, and how it takes note of an error.
function bearer(token) {
  const first = `n,,\x01host=localhost\x01auth=Bearer ${token}\x01\x01`;
  return {
    start: (callback) => callback(undefined, Buffer.from(first)),
    step: (challenge, callback) => callback(undefined, Buffer.from([1])),
  };
}

function login(each) {
  return new Promise((resolve) => {
    const began = Date.now();
    const says = (text) => resolve({began, took: Date.now() - began, said: String(text)});
    const refused = (error) => says(error.description || error.message || error);
    const options = {
      host: '127.0.0.1', port: each.port, transport: 'tls', ca: [pem(each.ca)], reconnect: false,
      container_id: 'rhea-login', servername: each.servername || 'localhost',
    };
    if (each.user) Object.assign(options, {username: each.user, password: each.password});
    if (each.certificate) {
      Object.assign(options, {cert: pem(each.certificate), key: pem(each.certificate)});
    }
    if (each.mechanism === 'EXTERNAL') options.enable_sasl_external = true;
    if (each.token) options.sasl_mechanisms = {OAUTHBEARER: () => bearer(each.token)};
    const container = rhea.create_container();
    container.on('connection_open', (context) => {
      says('connected to ' + context.connection.container_id);
      context.connection.close();
    });
    container.on('connection_error', (context) => refused(context.error || context.connection.error || 'no reason'));
    container.on('error', refused);
    container.on('disconnected', (context) => refused(context.error || 'disconnected'));
    container.connect(options);
  });
}

(async () => {
  for (const each of JSON.parse(cases)) console.log(JSON.stringify(await login(each)));
  process.exit(0);
})();
