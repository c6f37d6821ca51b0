import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.coordinator.group.generated.*;

/**
 * Prints records as Kafka writes them to __consumer_offsets: name, key, value, in hexadecimal. Run by hand, committed:
 * java -cp 'kafka-group-coordinator.jar:kafka-clients.jar' JavaGroupRecords.java > java_group_records.txt
 */
public class JavaGroupRecords {
    static void print(String name, int kind, ApiMessage key, int version, ApiMessage value) {
        String v = value == null ? "-" : hex(MessageUtil.toVersionPrefixedBytes((short) version, value));
        System.out.println(name + " " + hex(MessageUtil.toVersionPrefixedBytes((short) 0, key)).replaceFirst("0000", String.format("%04x", kind)) + " " + v);
    }

    static String hex(byte[] b) { return HexFormat.of().formatHex(b); }

    public static void main(String[] args) {
        Uuid id = new Uuid(0, 7);
        OffsetCommitKey ock = new OffsetCommitKey().setGroup("g").setTopic("t").setPartition(3);
        for (int v = 0; v <= 4; v++) {
            OffsetCommitValue value = new OffsetCommitValue().setOffset(42).setMetadata("note").setCommitTimestamp(1000);
            if (v >= 3) value.setLeaderEpoch(5);
            if (v == 1) value.setExpireTimestamp(2000);
            if (v == 4) value.setTopicId(id);
            print("offset-commit-v" + v, 1, ock, v, value);
        }
        print("offset-commit-tombstone", 1, ock, 0, null);
        for (int v = 0; v <= 4; v++) {
            GroupMetadataValue.MemberMetadata m = new GroupMetadataValue.MemberMetadata().setMemberId("m").setClientId("c")
                .setClientHost("/1.2.3.4").setSessionTimeout(10000).setSubscription(new byte[] {1, 2}).setAssignment(new byte[] {3});
            if (v >= 1) m.setRebalanceTimeout(30000);
            if (v >= 3) m.setGroupInstanceId("i");
            GroupMetadataValue value = new GroupMetadataValue().setProtocolType("consumer").setGeneration(9).setProtocol("range")
                .setLeader("m").setMembers(List.of(m));
            if (v >= 2) value.setCurrentStateTimestamp(1234);
            print("group-metadata-v" + v, 2, new GroupMetadataKey().setGroup("g"), v, value);
        }
        print("consumer-group", 3, new ConsumerGroupMetadataKey().setGroupId("g"), 0,
            new ConsumerGroupMetadataValue().setEpoch(4).setMetadataHash(-5));
        print("consumer-member", 5, new ConsumerGroupMemberMetadataKey().setGroupId("g").setMemberId("m"), 0,
            new ConsumerGroupMemberMetadataValue().setInstanceId("i").setRackId(null).setClientId("c").setClientHost("/1.2.3.4")
                .setSubscribedTopicNames(List.of("t", "u")).setSubscribedTopicRegex("t.*").setRebalanceTimeoutMs(30000)
                .setServerAssignor("range").setClassicMemberMetadata(new ConsumerGroupMemberMetadataValue.ClassicMemberMetadata()
                    .setSessionTimeoutMs(10000).setSupportedProtocols(List.of(new ConsumerGroupMemberMetadataValue.ClassicProtocol()
                        .setName("range").setMetadata(new byte[] {1})))));
        print("consumer-target-epoch", 6, new ConsumerGroupTargetAssignmentMetadataKey().setGroupId("g"), 0,
            new ConsumerGroupTargetAssignmentMetadataValue().setAssignmentEpoch(4).setAssignmentTimestamp(99));
        print("consumer-target", 7, new ConsumerGroupTargetAssignmentMemberKey().setGroupId("g").setMemberId("m"), 0,
            new ConsumerGroupTargetAssignmentMemberValue().setTopicPartitions(List.of(
                new ConsumerGroupTargetAssignmentMemberValue.TopicPartition().setTopicId(id).setPartitions(List.of(1, 2)))));
        print("consumer-current", 8, new ConsumerGroupCurrentMemberAssignmentKey().setGroupId("g").setMemberId("m"), 0,
            new ConsumerGroupCurrentMemberAssignmentValue().setMemberEpoch(4).setPreviousMemberEpoch(3).setState((byte) 1)
                .setAssignedPartitions(List.of(new ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions().setTopicId(id)
                    .setPartitions(List.of(1)).setAssignmentEpochs(List.of(4))))
                .setPartitionsPendingRevocation(List.of(new ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions()
                    .setTopicId(id).setPartitions(List.of(2)))));
        print("consumer-regex", 16, new ConsumerGroupRegularExpressionKey().setGroupId("g").setRegularExpression("t.*"), 0,
            new ConsumerGroupRegularExpressionValue().setTopics(List.of("t")).setVersion(8).setTimestamp(77));
        print("share-group", 11, new ShareGroupMetadataKey().setGroupId("g"), 0,
            new ShareGroupMetadataValue().setEpoch(2).setMetadataHash(6));
        print("share-state", 15, new ShareGroupStatePartitionMetadataKey().setGroupId("g"), 0,
            new ShareGroupStatePartitionMetadataValue().setInitializedTopics(List.of(
                new ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo().setTopicId(id).setTopicName("t").setPartitions(List.of(0, 1)))));
        print("streams-group", 17, new StreamsGroupMetadataKey().setGroupId("g"), 0, new StreamsGroupMetadataValue().setEpoch(1));
    }
}
