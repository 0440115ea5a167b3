import java.io.ByteArrayOutputStream;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;

/**
 * The types and frames of AMQP 1.0 (parts 1 and 2), as far as this client needs them.
 *
 * Written are Boolean, Byte (ubyte), Short (ushort), Integer (uint), Long (ulong), String, Symbol, ByteBuffer (binary),
 * Object[] (list), Map, Described and null. Read are the same, but all integers as Long, and lists as List.
 */
final class Amqp {
    static final int OPEN = 0x10, BEGIN = 0x11, ATTACH = 0x12, FLOW = 0x13, TRANSFER = 0x14, DISPOSITION = 0x15;
    static final int DETACH = 0x16, END = 0x17, CLOSE = 0x18, SOURCE = 0x28, TARGET = 0x29, DATA = 0x75;
    static final int ACCEPTED = 0x24, REJECTED = 0x25, RELEASED = 0x26, MODIFIED = 0x27;

    record Symbol(String name) {}

    /** A described value, such as a performative; its fields where it is a list. */
    record Described(long code, Object value) {
        Object field(int index) {
            List<?> fields = (List<?>) value;
            return index < fields.size() ? fields.get(index) : null;
        }

        boolean flag(int index) {
            return Boolean.TRUE.equals(field(index));
        }

        long number(int index, long otherwise) {
            return field(index) instanceof Long number ? number : otherwise;
        }
    }

    /** A frame whose performative has these fields. */
    static byte[] frame(int channel, int code, Object[] fields, ByteBuffer payload) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        integer(out, 0, 4);
        out.writeBytes(new byte[] {2, 0, (byte) (channel >> 8), (byte) channel});
        write(out, new Described(code, fields));
        if (payload != null) out.write(payload.array(), payload.position(), payload.remaining());
        byte[] frame = out.toByteArray();
        ByteBuffer.wrap(frame).putInt(frame.length);
        return frame;
    }

    static byte[] octets(Object value) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        write(out, value);
        return out.toByteArray();
    }

    private static void write(ByteArrayOutputStream out, Object value) {
        if (value == null) out.write(0x40);
        else if (value instanceof Boolean flag) out.write(flag ? 0x41 : 0x42);
        else if (value instanceof Byte n) integer(out, 0x50, n, 1);
        else if (value instanceof Short n) integer(out, 0x60, n, 2);
        else if (value instanceof Integer n) integer(out, 0x70, n, 4);
        else if (value instanceof Long n) integer(out, 0x80, n, 8);
        else if (value instanceof ByteBuffer octets) variable(out, 0xb0, octets.array());
        else if (value instanceof String text) variable(out, 0xb1, text.getBytes(StandardCharsets.UTF_8));
        else if (value instanceof Symbol symbol) variable(out, 0xb3, symbol.name.getBytes(StandardCharsets.US_ASCII));
        else if (value instanceof Described described) {
            integer(out, 0x00, 0x53, 1);
            integer(out, described.code, 1);
            write(out, described.value);
        } else if (value instanceof Map<?, ?> map) {
            List<Object> items = new ArrayList<>();
            map.forEach((key, item) -> items.addAll(Arrays.asList(key, item)));
            compound(out, 0xd1, items.toArray());
        } else compound(out, 0xd0, (Object[]) value);
    }

    private static void compound(ByteArrayOutputStream out, int code, Object[] items) {
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        for (Object item : items) write(body, item);
        integer(out, code, body.size() + 4, 4);
        integer(out, items.length, 4);
        out.writeBytes(body.toByteArray());
    }

    private static void variable(ByteArrayOutputStream out, int code, byte[] octets) {
        integer(out, code, octets.length, 4);
        out.writeBytes(octets);
    }

    private static void integer(ByteArrayOutputStream out, int code, long value, int width) {
        out.write(code);
        integer(out, value, width);
    }

    private static void integer(ByteArrayOutputStream out, long value, int width) {
        for (int shift = 8 * (width - 1); shift >= 0; shift -= 8) out.write((int) (value >> shift));
    }

    static Object read(ByteBuffer in) {
        return read(in, in.get() & 0xff);
    }

    private static Object read(ByteBuffer in, int code) {
        switch (code) {
            case 0x00: return new Described(read(in) instanceof Long descriptor ? descriptor : -1, read(in));
            case 0x40: return null;
            case 0x41: case 0x42: return code == 0x41;
            case 0x43: case 0x44: return 0L;
            case 0x45: return List.of();
            case 0x51: case 0x54: case 0x55: return (long) in.get();
            case 0x56: return in.get() != 0;
            case 0x61: return (long) in.getShort();
            case 0x71: return (long) in.getInt();
            default:
        }
        switch (code >> 4) {  // 1.2: this half of the code tells the width
            case 0x5: return in.get() & 0xffL;
            case 0x6: return in.getShort() & 0xffffL;
            case 0x7: return in.getInt() & 0xffffffffL;
            case 0x8: return in.getLong();
            case 0x9: return octets(in, 16);
            default:
        }
        boolean narrow = code >> 4 == 0xa || code >> 4 == 0xc || code >> 4 == 0xe;
        int size = narrow ? in.get() & 0xff : in.getInt();
        if (code >> 4 <= 0xb) {
            ByteBuffer octets = octets(in, size);
            String text = new String(octets.array(), StandardCharsets.UTF_8);
            return (code & 0xf) == 0 ? octets : (code & 0xf) == 1 ? text : new Symbol(text);
        }
        int count = narrow ? in.get() & 0xff : in.getInt();
        int element = code >> 4 >= 0xe ? in.get() & 0xff : -1;  // an array has one constructor for all
        List<Object> items = new ArrayList<>();
        for (int i = 0; i < count; i++) items.add(element < 0 ? read(in) : read(in, element));
        if ((code & 0xf) == 0 || element >= 0) return items;
        Map<Object, Object> map = new LinkedHashMap<>();
        for (int i = 0; i + 1 < count; i += 2) map.put(items.get(i), items.get(i + 1));
        return map;
    }

    /** Ranges of adjacent ids that have the same value: first and last of each. */
    static Map<Long, Long> ranges(NavigableMap<Long, ?> ids) {
        Map<Long, Long> ranges = new LinkedHashMap<>();
        long first = -2, last = -2;
        for (long id : ids.keySet()) {
            if (id != last + 1 || !ids.get(id).equals(ids.get(last))) first = id;
            ranges.put(first, last = id);
        }
        return ranges;
    }

    private static ByteBuffer octets(ByteBuffer in, int size) {
        if (size < 0 || size > in.remaining()) throw new BufferUnderflowException();
        byte[] octets = new byte[size];
        in.get(octets);
        return ByteBuffer.wrap(octets);
    }
}
