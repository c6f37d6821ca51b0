import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.lang.reflect.Constructor;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.Readable;

/**
 * Reads messages with the Kafka client's own classes and writes them back.
 *
 * stdin:  (class name: UTF, version: int16, length: int32, bytes)*
 * stdout: (outcome: int8, length: int32, bytes)*   outcome 0: the bytes written back, 1: a version this jar
 *         does not have, 2: an error, in words. An outcome of 0 is followed by the message as Java prints it.
 */
public final class WireEcho {
    private static byte[] echo(Message message, byte[] input, short version) {
        ByteBufferAccessor in = new ByteBufferAccessor(ByteBuffer.wrap(input));
        message.read(in, version);
        if (in.remaining() != 0) {
            throw new IllegalStateException(in.remaining() + " bytes were not read");
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer out = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(out), cache, version);
        if (out.remaining() != 0) {
            throw new IllegalStateException(out.remaining() + " bytes were not written");
        }
        return out.array();
    }

    private static void send(DataOutputStream out, int outcome, byte[] bytes) throws Exception {
        out.writeByte(outcome);
        out.writeInt(bytes.length);
        out.write(bytes);
    }

    public static void main(String[] args) throws Exception {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
        while (true) {
            String name;
            try {
                name = in.readUTF();
            } catch (EOFException end) {
                break;
            }
            short version = in.readShort();
            byte[] input = in.readNBytes(in.readInt());
            Message message = null;
            try {
                Constructor<?> constructor = Class.forName("org.apache.kafka.common.message." + name).getConstructor();
                message = (Message) constructor.newInstance();
            } catch (ClassNotFoundException missing) {
                // an API that this jar does not have
            }
            if (message == null
                    || version < message.lowestSupportedVersion()
                    || version > message.highestSupportedVersion()) {
                send(out, 1, new byte[0]);
                continue;
            }
            byte[] output;
            try {
                output = echo(message, input, version);
            } catch (RuntimeException wrong) {
                send(out, 2, wrong.toString().getBytes(StandardCharsets.UTF_8));
                continue;
            }
            send(out, 0, output);
            byte[] shown = message.toString().getBytes(StandardCharsets.UTF_8);
            out.writeInt(shown.length);
            out.write(shown);
        }
        out.flush();
    }
}
