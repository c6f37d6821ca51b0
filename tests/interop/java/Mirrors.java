// Kafka's own classes of MirrorMaker 2, for comparison: records of internal topics, translation, RemoteClusterUtils.
//
//   java Mirrors.java records            the bytes of one heartbeat, checkpoint and offset sync
//   java Mirrors.java store              standard input: "sync U D", "loaded", "ask U"; answers of OffsetSyncStore
//   java Mirrors.java client SERVERS ALIAS GROUP     what RemoteClusterUtils says of a cluster

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.OptionalLong;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

public class Mirrors {
    private static final String PACKAGE = "org.apache.kafka.connect.mirror.";
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);

    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "records" -> records();
            case "store" -> store();
            case "client" -> client(arguments[1], arguments[2], arguments[3]);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private static void records() throws Exception {
        print("Heartbeat", make("Heartbeat", "us-west", "eu", 1_700_000_000_000L));
        print("Checkpoint", make("Checkpoint", "g\u00f6", new TopicPartition("A.t", 3), 100L, 42L, "m"));
        print("OffsetSync", make("OffsetSync", new TopicPartition("t\u00f6", 7), 1L << 40, -1L));
    }

    private static Object make(String name, Object... values) throws Exception {
        Constructor<?> constructor = Class.forName(PACKAGE + name).getDeclaredConstructors()[0];
        constructor.setAccessible(true);
        return constructor.newInstance(values);
    }

    private static void print(String name, Object value) throws Exception {
        System.out.println(name + " " + hex(value, "recordKey") + " " + hex(value, "recordValue"));
    }

    private static String hex(Object value, String method) throws Exception {
        return HexFormat.of().formatHex((byte[]) call(value, method));
    }

    private static Object call(Object value, String name) throws Exception {
        Method method = value.getClass().getDeclaredMethod(name);
        method.setAccessible(true);
        return method.invoke(value);
    }

    private static void store() throws Exception {
        Class<?> type = Class.forName(PACKAGE + "OffsetSyncStore");
        Constructor<?> constructor = type.getDeclaredConstructor();
        constructor.setAccessible(true);
        Object store = constructor.newInstance();
        Method add = type.getDeclaredMethod("handleRecord", ConsumerRecord.class);
        Method ask = type.getDeclaredMethod("translateDownstream", String.class, TopicPartition.class, long.class);
        Field loaded = type.getDeclaredField("readToEnd");
        Field lastOnly = type.getDeclaredField("initializationMustReadToEnd");
        for (var member : new java.lang.reflect.AccessibleObject[] {add, ask, loaded, lastOnly}) {
            member.setAccessible(true);
        }
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "only-newest" -> lastOnly.set(store, Boolean.parseBoolean(words[1]));
                case "loaded" -> loaded.set(store, true);
                case "sync" -> {
                    Object sync = make("OffsetSync", PARTITION, Long.parseLong(words[1]), Long.parseLong(words[2]));
                    byte[] key = (byte[]) call(sync, "recordKey");
                    byte[] value = (byte[]) call(sync, "recordValue");
                    add.invoke(store, new ConsumerRecord<>("syncs", 0, 0L, key, value));
                }
                default -> {
                    OptionalLong found = (OptionalLong) ask.invoke(store, null, PARTITION, Long.parseLong(words[1]));
                    System.out.println(found.isPresent() ? Long.toString(found.getAsLong()) : "-");
                }
            }
        }
    }

    private static void client(String servers, String alias, String group) throws Exception {
        Map<String, Object> properties = new HashMap<>();
        properties.put("bootstrap.servers", servers);
        System.out.println("upstream " + new TreeSet<>(RemoteClusterUtils.upstreamClusters(properties)));
        System.out.println("hops " + RemoteClusterUtils.replicationHops(properties, alias));
        System.out.println("heartbeats " + new TreeSet<>(RemoteClusterUtils.heartbeatTopics(properties)));
        System.out.println("checkpoints " + new TreeSet<>(RemoteClusterUtils.checkpointTopics(properties)));
        Map<TopicPartition, OffsetAndMetadata> offsets =
                RemoteClusterUtils.translateOffsets(properties, alias, group, Duration.ofSeconds(20));
        Map<String, String> shown = new TreeMap<>();
        offsets.forEach((partition, offset) -> shown.put(partition.toString(), offset.offset() + " " + offset.metadata()));
        System.out.println("offsets " + shown);
    }
}
