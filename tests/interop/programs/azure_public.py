"""azure-servicebus or azure-eventhub by its public API: `PACKAGE send|receive HOST:PORT ADDRESS COUNT`.

- send: COUNT messages, one by one; prints `accepted` after each.
- receive: prints each body, and ends when it has COUNT.
"""

import sys

package, what, place, address, count = sys.argv[1:]
CONNECTION = f"Endpoint=sb://{place};SharedAccessKeyName=any;SharedAccessKey=YW55;UseDevelopmentEmulator=true;"
COUNT = int(count)
TEXTS = [f"message {number}" for number in range(COUNT)]


def send_to_service_bus():
    from azure.servicebus import ServiceBusClient, ServiceBusMessage

    with ServiceBusClient.from_connection_string(CONNECTION) as client, client.get_queue_sender(address) as sender:
        for text in TEXTS:
            sender.send_messages(ServiceBusMessage(text))
            print("accepted", flush=True)


def receive_from_service_bus():
    from azure.servicebus import ServiceBusClient

    with ServiceBusClient.from_connection_string(CONNECTION) as client, client.get_queue_receiver(address) as receiver:
        for _, message in zip(range(COUNT), receiver, strict=False):
            print(message, flush=True)
            receiver.complete_message(message)


def send_to_event_hub():
    from azure.eventhub import EventData, EventHubProducerClient

    with EventHubProducerClient.from_connection_string(CONNECTION, eventhub_name=address) as producer:
        for text in TEXTS:
            producer.send_event(EventData(text))
            print("accepted", flush=True)


def receive_from_event_hub():
    from azure.eventhub import EventHubConsumerClient

    consumer = EventHubConsumerClient.from_connection_string(CONNECTION, "$default", eventhub_name=address)
    left = [COUNT]

    def take(_, event):
        print(event.body_as_str(), flush=True)
        left[0] -= 1
        if not left[0]:
            consumer.close()

    consumer.receive(on_event=take, starting_position="-1")


DOES = {
    ("servicebus", "send"): send_to_service_bus,
    ("servicebus", "receive"): receive_from_service_bus,
    ("eventhub", "send"): send_to_event_hub,
    ("eventhub", "receive"): receive_from_event_hub,
}
DOES[package, what]()
