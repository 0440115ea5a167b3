// rhea and the parts of it that we use. Installed beside us (npm install), in NODE_PATH, or by this repository's tests.
'use strict';

function load(part) {
    try {
        return require('rhea' + part);
    } catch (error) {
        if (error.code !== 'MODULE_NOT_FOUND') throw error;
        return require('../../tests/interop/node_modules/rhea' + part);
    }
}

module.exports = {
    rhea: load(''),
    Session: load('/lib/session.js'),
    frames: load('/lib/frames.js'),
    message: load('/lib/message.js'),
    terminus: load('/lib/terminus.js'),
    types: load('/lib/types.js'),
};
