// A read-process-write application on Kafka's Java client, made to be killed: copies a topic exactly once.
//
//   java -cp JARS TransactionalCopier.java BOOTSTRAP INPUT OUTPUT GROUP RECORDS_PER_TRANSACTION
//
// Partition i of the input goes to partition i of the output. Offsets travel in the transaction with the member's
// generation (KIP-447). It runs until it is killed, or until an error that a producer does not survive.
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

public class TransactionalCopier {
    public static void main(String[] args) {
        String group = args[3];
        int perTransaction = Integer.parseInt(args[4]);
        Map<String, Object> reading = new HashMap<>();
        reading.put("bootstrap.servers", args[0]);
        reading.put("group.id", group);
        reading.put("group.instance.id", group + "-1");
        reading.put("auto.offset.reset", "earliest");
        reading.put("enable.auto.commit", false);
        reading.put("isolation.level", "read_committed");
        reading.put("session.timeout.ms", 6000);
        reading.put("heartbeat.interval.ms", 500);
        reading.put("max.poll.records", perTransaction);
        reading.put("reconnect.backoff.max.ms", 200);
        Map<String, Object> writing = new HashMap<>();
        writing.put("bootstrap.servers", args[0]);
        writing.put("transactional.id", "copier-" + group);
        writing.put("transaction.timeout.ms", 10_000);
        writing.put("linger.ms", 2);
        writing.put("reconnect.backoff.max.ms", 200);
        try (var producer = new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer());
             var consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(args[1]));
            while (true) {
                var batch = consumer.poll(Duration.ofMillis(200));
                if (!batch.isEmpty()) copy(producer, consumer, batch, args[2]);
            }
        } catch (KafkaException fatal) {
            System.err.println("giving up: " + fatal);
            Runtime.getRuntime().halt(1);
        }
    }

    static void copy(
            KafkaProducer<String, String> producer, KafkaConsumer<String, String> consumer,
            ConsumerRecords<String, String> batch, String target) {
        producer.beginTransaction();
        try {
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (var record : batch) {
                producer.send(new ProducerRecord<>(target, record.partition(), record.key(), record.value()));
                offsets.put(new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
            }
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            while (true) {
                try {
                    producer.commitTransaction();
                    break;
                } catch (TimeoutException unknown) {
                    System.err.println("committing again: " + unknown);
                }
            }
        } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException fatal) {
            throw fatal;
        } catch (KafkaException failed) {
            System.err.println("aborting: " + failed);
            producer.abortTransaction();
            var committed = consumer.committed(consumer.assignment());
            committed.forEach((partition, offset) -> consumer.seek(partition, offset == null ? 0 : offset.offset()));
        }
    }
}
