// One pass through the transactional producer and the administration of transactions (KIP-664) of the Java client;
// prints what each step gave, for test_interop_transactions.py.
//
//   java -cp JARS Transactions.java BOOTSTRAP TOPIC
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

public class Transactions {
    static String bootstrap;
    static String topic;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        topic = args[1];
        try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all().get();
            var features = admin.describeFeatures().featureMetadata().get();
            say("transaction.version", features.finalizedFeatures().get("transaction.version").maxVersionLevel());
            var first = producer("java-a");
            for (int i = 0; i < 6; i++) transact(first, i % 3 != 2, "a" + i);
            say("epoch after six", state(admin, "java-a").producerEpoch());
            say("state", state(admin, "java-a").state());

            first.beginTransaction();
            first.send(new ProducerRecord<>(topic, 0, null, "zombie")).get();
            say("state", state(admin, "java-a").state());
            say("partitions", state(admin, "java-a").topicPartitions());
            var second = producer("java-a");
            try {
                first.commitTransaction();
                say("zombie", "committed");
            } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
                say("zombie", "fenced");
            }
            transact(second, true, "heir");
            say("committed", read("read_committed"));
            say("all", read("read_uncommitted"));

            second.beginTransaction();
            second.send(new ProducerRecord<>(topic, 0, null, "hanging")).get();
            say("listed", new TreeMap<>(listed(admin)));
            var tp = new TopicPartition(topic, 0);
            var open = admin.describeProducers(List.of(tp)).partitionResult(tp).get().activeProducers().stream()
                    .filter(p -> p.currentTransactionStartOffset().isPresent()).findFirst().get();
            admin.abortTransaction(new AbortTransactionSpec(
                    tp, open.producerId(), (short) open.producerEpoch(), open.coordinatorEpoch().orElse(0))).all().get();
            say("committed after an abort by hand", read("read_committed"));
            admin.fenceProducers(List.of("java-a")).all().get();
            try {
                second.commitTransaction();
                say("fenced by hand", "committed");
            } catch (KafkaException fenced) {
                say("fenced by hand", fenced.getClass().getSimpleName());
            }
            first.close(Duration.ZERO);
            second.close(Duration.ZERO);
        }
    }

    static KafkaProducer<String, String> producer(String id) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("transactional.id", id);
        var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    static void transact(KafkaProducer<String, String> producer, boolean commit, String value) throws Exception {
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, 0, null, value));
        producer.flush();
        if (commit) producer.commitTransaction();
        else producer.abortTransaction();
    }

    static TransactionDescription state(Admin admin, String id) throws Exception {
        return admin.describeTransactions(List.of(id)).description(id).get();
    }

    static Map<String, String> listed(Admin admin) throws Exception {
        Map<String, String> states = new HashMap<>();
        for (var listing : admin.listTransactions(new ListTransactionsOptions().filterOnTransactionalIdPattern("java-.*"))
                .all().get()) states.put(listing.transactionalId(), listing.state().toString());
        return states;
    }

    static List<String> read(String isolation) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "isolation.level", isolation);
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            var tp = new TopicPartition(topic, 0);
            consumer.assign(List.of(tp));
            consumer.seekToBeginning(List.of(tp));
            long end = consumer.endOffsets(List.of(tp)).get(tp);
            List<String> values = new ArrayList<>();
            while (consumer.position(tp) < end)
                for (var record : consumer.poll(Duration.ofMillis(100))) values.add(record.value());
            return values;
        }
    }

    static void say(String what, Object value) {
        System.out.println(what + ": " + value);
    }
}
