'use strict';

module.exports = {Publisher: require('./publisher.js'), Subscriber: require('./subscriber.js')};
