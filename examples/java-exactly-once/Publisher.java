import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.*;

/** An exactly-once publisher: it keeps each message until it has its outcome, and sends it again until then. */
final class Publisher extends Client {
    private static final Map<Long, String> OUTCOMES =
        Map.of((long) Amqp.ACCEPTED, "accepted", (long) Amqp.REJECTED, "rejected", (long) Amqp.RELEASED, "released");
    private final NavigableMap<Long, String> undecided = new TreeMap<>();  // by number, which is the delivery-tag
    private final Set<Long> told = new HashSet<>();  // of this life: their outcomes are told
    private final NavigableMap<Long, Long> numbers = new TreeMap<>();  // by delivery-id of this attach
    private final NavigableMap<Long, Boolean> toSettle = new TreeMap<>();  // delivery-ids
    private long next, sent, nextId, deliveryCount, credit;
    private boolean drain;
    private ByteBuffer sending;  // what is left of a message that needs several transfers

    Publisher(String address, String urls, Path state) throws IOException {
        super(true, address, urls, state);
        next = Math.max(1, journal.number("next"));
        life = journal.number("incarnation");
        journal.each("m/", (number, body) -> undecided.put(Long.parseLong(number), body));
    }

    @Override
    void order(String verb, String body) {
        long number = next++;
        String octets = Base64.getEncoder().encodeToString(body.getBytes(StandardCharsets.UTF_8));
        journal.put("next", next);
        journal.put("m/" + number, octets);
        undecided.put(number, octets);
        told.add(number);
    }

    @Override
    Map<ByteBuffer, Object> map(long epoch) {
        if (!undecided.isEmpty() && absentTooLong(true)) expire();
        numbers.clear();
        toSettle.clear();
        sending = null;
        drain = false;
        sent = nextId = deliveryCount = credit = 0;
        boolean fresh = life == 0;
        if (fresh) life = epoch;
        journal.put("incarnation", life);
        Map<ByteBuffer, Object> map = new LinkedHashMap<>();
        undecided.keySet().forEach(number -> map.put(tag(number), null));
        return fresh ? null : map;
    }

    @Override
    void answered(Amqp.Described attach, long granted) {
        timeout = granted == 0 || granted == 0xffffffffL ? 120 : granted;
    }

    @Override
    void linkFrame(Amqp.Described frame, ByteBuffer payload) {
        if (frame.code() == Amqp.FLOW && frame.field(4) != null) {
            if (!link.ready && !undecided.isEmpty() && absentTooLong(true)) {
                expire();
                leave();
                return;
            }
            link.ready = true;
            credit = Math.max(0, (int) (frame.number(5, 0) + frame.number(6, 0) - deliveryCount));
            drain = frame.flag(8);
            if (frame.flag(9)) connection.flow(link.session, (int) deliveryCount, (int) credit);
        } else if (frame.code() == Amqp.DISPOSITION && frame.field(4) instanceof Amqp.Described state) {
            String outcome = OUTCOMES.get(state.code());
            if (outcome == null) return;
            long last = frame.number(2, frame.number(1, 0));
            Map<Long, Long> decided = numbers.subMap(frame.number(1, 0), true, last, true);
            decided.forEach((id, number) -> {
                if (!frame.flag(3)) toSettle.put(id, true);
                decide(number, outcome);
            });
            decided.clear();
            link.worked = true;
        }
    }

    private void decide(long number, String outcome) {
        String body = undecided.remove(number);
        journal.remove("m/" + number);
        if (told.remove(number)) tell(outcome + " " + text(body));
    }

    @Override
    void pump() {
        for (Map.Entry<Long, Long> range : Amqp.ranges(toSettle).entrySet()) {
            int first = range.getKey().intValue();
            connection.send(link.session.channel, Amqp.DISPOSITION, false, first, range.getValue().intValue(), true);
        }
        toSettle.clear();
        while (link.ready && link.session.window > 0) {
            Map.Entry<Long, String> first = credit > 0 && sending == null ? undecided.higherEntry(sent) : null;
            if (first != null) {
                sent = first.getKey();
                sending = ByteBuffer.wrap(payload(first.getValue()));
                numbers.put(nextId++, sent);
                deliveryCount++;
                credit--;
            }
            if (sending == null) break;
            int end = Math.min(sending.limit(), sending.position() + connection.peerFrame - 128);
            boolean more = end < sending.limit();
            ByteBuffer part = sending.duplicate().limit(end);
            connection.transfer(link.session, part, 0, (int) (nextId - 1), tag(sent), 0, false, more);
            sending = more ? sending.position(end) : null;
        }
        if (drain && credit > 0 && undecided.higherEntry(sent) == null) {
            deliveryCount += credit;
            credit = 0;
            connection.flow(link.session, (int) deliveryCount, 0, 0, true);
        }
    }

    @Override
    boolean heeds(String condition) {
        boolean expired = condition.matches("onceway:publisher-(expired|unknown)");
        if (expired) expire();
        if (condition.equals("amqp:link:stolen") && undecided.isEmpty()) life = 0;
        return expired;
    }

    /** The network has forgotten this publisher: what is undecided may arrive or not, and must not be sent again. */
    private void expire() {
        undecided.forEach((number, body) -> {
            tellFirst("undecided " + text(body));
            journal.remove("m/" + number);
        });
        undecided.clear();
        told.clear();
        life = 0;
        journal.put("incarnation", life);
        forgetContact();
    }

    private static ByteBuffer tag(long number) {
        return ByteBuffer.wrap(ByteBuffer.allocate(8).putLong(number).array());
    }

    private static String text(String body) {
        return new String(Base64.getDecoder().decode(body), StandardCharsets.UTF_8);
    }

    private static byte[] payload(String body) {
        return Amqp.octets(new Amqp.Described(Amqp.DATA, ByteBuffer.wrap(Base64.getDecoder().decode(body))));
    }
}
