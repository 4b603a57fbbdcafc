import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.channels.GatheringByteChannel;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.network.Send;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.RecordsReadable;
import org.apache.kafka.common.protocol.RecordsWritable;
import org.apache.kafka.common.record.BaseRecords;
import org.apache.kafka.common.record.MemoryRecords;

/**
 * Answers for Apache Kafka what its own classes read in bytes.
 *
 * With "facts": one line for each API and for each error code. Otherwise each line of input is
 * "API KIND VERSION HEX"; the answer is "HEX JSON", the message written again and its values,
 * or "refused EXCEPTION" if it cannot be read, or "unwritable EXCEPTION".
 */
public class Oracle {
    /** Writes record data among the rest, and not as a Send of their own. */
    static class Writer extends RecordsWritable {
        Writer(int size, Consumer<Send> sends) {
            super("nowhere", size, sends);
        }

        @Override
        public void writeRecords(BaseRecords records) {
            writeByteBuffer(((MemoryRecords) records).buffer());
        }
    }

    /** Collects what a Send writes. */
    static class Collector implements GatheringByteChannel {
        final ByteArrayOutputStream collected = new ByteArrayOutputStream();

        @Override
        public int write(ByteBuffer buffer) {
            int size = buffer.remaining();
            byte[] bytes = new byte[size];
            buffer.get(bytes);
            collected.write(bytes, 0, size);
            return size;
        }

        @Override
        public long write(ByteBuffer[] buffers, int offset, int length) {
            long size = 0;
            for (int i = offset; i < offset + length; i++) {
                size += write(buffers[i]);
            }
            return size;
        }

        @Override
        public long write(ByteBuffer[] buffers) {
            return write(buffers, 0, buffers.length);
        }

        @Override
        public boolean isOpen() {
            return true;
        }

        @Override
        public void close() {
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        if (arguments.length > 0) {
            facts(out);
        } else {
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                String[] words = line.split(" ", -1);
                out.println(answer(words[0], words[1], Short.parseShort(words[2]), words[3]));
            }
        }
        out.flush();
    }

    static String answer(String api, String kind, short version, String hex) throws Exception {
        ApiMessageType type = ApiMessageType.fromApiKey(Short.parseShort(api));
        ApiMessage message = kind.equals("request") ? type.newRequest() : type.newResponse();
        try {
            message.read(new RecordsReadable(ByteBuffer.wrap(bytes(hex))), version);
        } catch (Exception | OutOfMemoryError error) {
            return "refused " + error;
        }
        Collector written = new Collector();
        try {
            ObjectSerializationCache cache = new ObjectSerializationCache();
            List<Send> sends = new ArrayList<>();
            Writer writer = new Writer(message.size(cache, version), sends::add);
            message.write(writer, cache, version);
            writer.flush();
            for (Send send : sends) {
                send.writeTo(written);
            }
        } catch (Exception error) {
            return "unwritable " + error;
        }
        Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
        Method write = converter.getMethod("write", message.getClass(), short.class);
        return hex(written.collected.toByteArray()) + " " + write.invoke(null, message, version);
    }

    static void facts(PrintStream out) {
        for (ApiKeys api : ApiKeys.values()) {
            StringBuilder headers = new StringBuilder();
            for (short version = 0; version <= api.latestVersion(); version++) {
                headers.append(' ').append(api.requestHeaderVersion(version));
                headers.append('/').append(api.responseHeaderVersion(version));
            }
            out.println("api " + api.id + " " + api.name + " " + api.latestVersion() + " "
                + api.clusterAction + headers);
        }
        for (Errors error : Errors.values()) {
            boolean isRetriable = error.exception() instanceof RetriableException;
            out.println("error " + error.code() + " " + error.name() + " " + isRetriable);
        }
    }

    static byte[] bytes(String hex) {
        byte[] bytes = new byte[hex.length() / 2];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        }
        return bytes;
    }

    static String hex(byte[] bytes) {
        StringBuilder hex = new StringBuilder();
        for (byte b : bytes) {
            hex.append(Character.forDigit((b >> 4) & 15, 16)).append(Character.forDigit(b & 15, 16));
        }
        return hex.toString();
    }
}
