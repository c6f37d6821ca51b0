// A foreign client in Java (kafka-clients): produce or consume numbered records, for test_interop_clients.py.
//
//   java -cp JARS Roundtrip.java produce BOOTSTRAP TOPIC COUNT CODEC
//   java -cp JARS Roundtrip.java consume BOOTSTRAP TOPIC COUNT GROUP     prints one JSON object a record
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

public class Roundtrip {
    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[3]);
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", args[1]);
        if (args[0].equals("produce")) produce(config, args[2], count, args[4]);
        else consume(config, args[2], count, args[4]);
    }

    static void produce(Map<String, Object> config, String topic, int count, String codec) throws Exception {
        config.put("compression.type", codec);
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            List<java.util.concurrent.Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                var record = new ProducerRecord<>(topic, "key-" + i, "java-" + i);
                record.headers().add("n", Integer.toString(i).getBytes());
                sent.add(producer.send(record));
            }
            for (var future : sent) future.get();
        }
    }

    static void consume(Map<String, Object> config, String topic, int count, String group) {
        config.put("group.id", group);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", false);
        config.put("group.protocol", System.getProperty("group.protocol", "classic"));
        var out = new StringBuilder();
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            long deadline = System.currentTimeMillis() + 60_000;
            for (int seen = 0; seen < count; ) {
                if (System.currentTimeMillis() > deadline) throw new IllegalStateException("saw only " + seen);
                for (var r : consumer.poll(Duration.ofMillis(500))) {
                    seen++;
                    out.append(String.format("{\"key\":\"%s\",\"value\":\"%s\",\"partition\":%d,\"offset\":%d,\"headers\":%d}%n",
                        r.key(), r.value(), r.partition(), r.offset(), r.headers().toArray().length));
                }
            }
            consumer.commitSync();
        }
        System.out.print(out);
    }
}
