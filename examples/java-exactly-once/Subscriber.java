import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.*;

/** An exactly-once subscriber: it holds each delivery, by its tag, until the router has settled it. */
final class Subscriber extends Client {
    private static final int WINDOW = 100;
    private static final Map<String, Integer> VERDICTS =
        Map.of("accept", Amqp.ACCEPTED, "reject", Amqp.REJECTED, "release", Amqp.RELEASED);

    /** A delivery that is held. */
    private static final class Held {
        final String body;
        int verdict;  // 0: the application has not decided
        long id = -1;  // in this attach; -1: it has none there
        boolean said;  // in this attach

        Held(String body, int verdict) {
            this.body = body;
            this.verdict = verdict;
        }
    }

    private final Map<ByteBuffer, Held> held = new LinkedHashMap<>();
    private final Map<String, ByteBuffer> byBody = new HashMap<>();  // what the application may decide
    private final NavigableMap<Long, ByteBuffer> ids = new TreeMap<>();  // tags by delivery-id, of this attach
    private final Set<ByteBuffer> listed = new HashSet<>();  // by the answer
    private final NavigableMap<Long, Integer> toSay = new TreeMap<>();  // verdicts by delivery-id
    private long born, deliveryCount, credit;
    private boolean gap, incomplete;
    private Amqp.Described first;  // of the transfers of the delivery that is arriving
    private final ByteArrayOutputStream arrived = new ByteArrayOutputStream();

    Subscriber(String address, String urls, Path state) throws IOException {
        super(false, address, urls, state);
        born = journal.number("born");
        journal.each("d/", (tag, verdict) -> {
            held.put(ByteBuffer.wrap(HexFormat.of().parseHex(tag)), new Held(null, Integer.parseInt(verdict)));
        });
    }

    @Override
    void order(String verb, String body) {
        ByteBuffer tag = byBody.remove(body);
        if (tag == null) return;  // settled before the application decided: its verdict is void
        Held delivery = held.get(tag);
        delivery.verdict = VERDICTS.get(verb);
        if (delivery.verdict != Amqp.RELEASED) journal.put(key(tag), delivery.verdict);
        say(delivery);
    }

    /** The verdict goes out at the end of the turn, when it is durable. */
    private void say(Held delivery) {
        if (!attached() || delivery.id < 0) return;
        toSay.put(delivery.id, delivery.verdict);
        delivery.said = true;
    }

    @Override
    Map<ByteBuffer, Object> map(long epoch) {
        gap |= born != 0 && timeout != 0xffffffffL && absentTooLong(false);
        life = gap || born == 0 ? epoch : born;
        ids.clear();
        toSay.clear();
        first = null;
        Map<ByteBuffer, Object> map = new LinkedHashMap<>();
        held.forEach((tag, delivery) -> {
            delivery.id = -1;
            delivery.said = false;
            map.put(tag, delivery.verdict == 0 ? null : new Amqp.Described(delivery.verdict, new Object[0]));
        });
        return born == 0 ? null : map;
    }

    @Override
    void answered(Amqp.Described attach, long granted) {
        timeout = granted;
        if (gap) tellFirst("missed");
        gap = false;
        born = life;
        journal.put("born", born);
        listed.clear();
        if (attach.field(7) instanceof Map<?, ?> map) map.keySet().forEach(tag -> listed.add((ByteBuffer) tag));
        incomplete = attach.flag(8);
        if (!incomplete && link.map != null) {
            link.map.keySet().stream().filter(tag -> !listed.contains(tag)).forEach(this::forget);
        }
        deliveryCount = attach.number(9, 0);
        credit = 0;
        link.ready = true;
    }

    @Override
    void linkFrame(Amqp.Described frame, ByteBuffer payload) {
        if (frame.code() == Amqp.FLOW && frame.field(4) != null) {
            credit -= (int) (frame.number(5, 0) - deliveryCount);
            deliveryCount = frame.number(5, 0);
            if (frame.flag(9)) connection.flow(link.session, (int) deliveryCount, (int) credit);
        } else if (frame.code() == Amqp.TRANSFER) {
            onTransfer(frame, payload);
        } else if (frame.code() == Amqp.DISPOSITION && frame.flag(3)) {
            long last = frame.number(2, frame.number(1, 0));
            Map<Long, ByteBuffer> settled = ids.subMap(frame.number(1, 0), true, last, true);
            settled.forEach((id, tag) -> {
                if (held.containsKey(tag) && held.get(tag).id == id) forget(tag);
            });
            settled.clear();
        }
    }

    private void onTransfer(Amqp.Described frame, ByteBuffer payload) {
        if (first == null) {
            first = frame;
            arrived.reset();
            deliveryCount++;
            credit--;
        }
        arrived.write(payload.array(), payload.position(), payload.remaining());
        if (frame.flag(5) && !frame.flag(9)) return;
        ByteBuffer tag = (ByteBuffer) first.field(2);
        if (frame.flag(9)) forget(tag);
        else onDelivery(first.number(1, 0), tag, first.flag(8), frame.flag(4) || first.flag(4));
        first = null;
    }

    private void onDelivery(long id, ByteBuffer tag, boolean resume, boolean settled) {
        if (held.containsKey(tag) && held.get(tag).verdict == Amqp.RELEASED && !resume) forget(tag);
        Held delivery = held.get(tag);
        listed.remove(tag);
        if (settled) {
            if (resume) forget(tag);
            else tell("received " + body());
        } else if (delivery != null) {
            delivery.id = id;
            ids.put(id, tag);
            if (delivery.verdict != 0) say(delivery);
        } else if (arrived.size() == 0) {
            toSay.put(id, Amqp.RELEASED);
        } else {
            delivery = new Held(body(), 0);
            delivery.id = id;
            held.put(tag, delivery);
            ids.put(id, tag);
            byBody.put(delivery.body, tag);
            tell("received " + delivery.body);
        }
    }

    private String body() {
        ByteBuffer payload = ByteBuffer.wrap(arrived.toByteArray());
        while (true) {
            Amqp.Described section = (Amqp.Described) Amqp.read(payload);
            if (section.code() != Amqp.DATA) continue;
            return new String(((ByteBuffer) section.value()).array(), StandardCharsets.UTF_8);
        }
    }

    private void forget(ByteBuffer tag) {
        Held delivery = held.remove(tag);
        if (delivery == null) return;
        journal.remove(key(tag));
        byBody.remove(delivery.body, tag);
    }

    @Override
    void pump() {
        for (Map.Entry<Long, Long> range : Amqp.ranges(toSay).entrySet()) {
            Object state = new Amqp.Described(toSay.get(range.getKey()), new Object[0]);
            connection.send(link.session.channel, Amqp.DISPOSITION, true, range.getKey().intValue(),
                range.getValue().intValue(), false, state);
        }
        toSay.clear();
        long room = WINDOW - byBody.size() + listed.size();
        if (room > credit && (credit == 0 || room - credit >= WINDOW / 4)) {
            credit = room;
            connection.flow(link.session, (int) deliveryCount, (int) credit);
        }
        if (incomplete && decided()) leave();
    }

    /** Whether all that an incomplete answer listed has been resumed and has a verdict on the wire, or is settled. */
    private boolean decided() {
        return listed.isEmpty() && held.values().stream().allMatch(delivery -> delivery.id < 0 || delivery.said);
    }

    @Override
    boolean heeds(String condition) {
        boolean broken = condition.equals("onceway:subscription-broken");
        gap |= broken;
        return broken;
    }

    private static String key(ByteBuffer tag) {
        return "d/" + HexFormat.of().formatHex(tag.array());
    }
}
