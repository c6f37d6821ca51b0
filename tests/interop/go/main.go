// A foreign client in Go (franz-go): produce or consume numbered records, for tests/interop/test_interop_clients.py.
//
//	franz produce BOOTSTRAP TOPIC COUNT CODEC
//	franz consume BOOTSTRAP TOPIC COUNT GROUP     prints one JSON object a record, commits and leaves
//
// The environment may have SECURITY_CA, SECURITY_CERTIFICATE and SECURITY_KEY (PEM files), and SECURITY_MECHANISM,
// SECURITY_USER and SECURITY_PASSWORD; or SECURITY_TOKEN, for OAUTHBEARER without TLS.
//
//	franz copy BOOTSTRAP INPUT OUTPUT GROUP COUNT  read, process, write: COUNT records a transaction, until it is killed
//	franz share BOOTSTRAP TOPIC GROUP              prints the value of each record of a share group, until it is killed
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	if os.Args[1] == "copy" {
		perTransaction, err := strconv.Atoi(os.Args[6])
		check(err)
		transact(os.Args[2], os.Args[3], os.Args[4], os.Args[5], perTransaction)
		return
	}
	if os.Args[1] == "share" {
		share(os.Args[2], os.Args[3], os.Args[4])
		return
	}
	mode, bootstrap, topic, last := os.Args[1], os.Args[2], os.Args[3], os.Args[5]
	count, err := strconv.Atoi(os.Args[4])
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if mode == "produce" {
		produce(ctx, bootstrap, topic, count, last)
	} else {
		consume(ctx, bootstrap, topic, count, last)
	}
}

// secured returns the options of a client with TLS and SASL, as the environment says; none without SECURITY_CA and SECURITY_TOKEN.
func secured(options ...kgo.Opt) []kgo.Opt {
	if token := os.Getenv("SECURITY_TOKEN"); token != "" {
		return append(options, kgo.SASL(oauth.Auth{Token: token}.AsMechanism()))
	}
	ca := os.Getenv("SECURITY_CA")
	if ca == "" {
		return options
	}
	text, err := os.ReadFile(ca)
	check(err)
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	config.RootCAs.AppendCertsFromPEM(text)
	if path := os.Getenv("SECURITY_CERTIFICATE"); path != "" {
		pair, err := tls.LoadX509KeyPair(path, os.Getenv("SECURITY_KEY"))
		check(err)
		config.Certificates = []tls.Certificate{pair}
	}
	user, password := os.Getenv("SECURITY_USER"), os.Getenv("SECURITY_PASSWORD")
	switch os.Getenv("SECURITY_MECHANISM") {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
	}
	return append(options, kgo.DialTLSConfig(config))
}

func produce(ctx context.Context, bootstrap, topic string, count int, codec string) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	client, err := kgo.NewClient(secured(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.ProducerBatchCompression(codecs[codec]),
		kgo.AllowAutoTopicCreation())...)
	check(err)
	defer client.Close()
	for i := 0; i < count; i++ {
		client.Produce(ctx, &kgo.Record{
			Topic: topic, Key: []byte(fmt.Sprintf("key-%d", i)), Value: []byte(fmt.Sprintf("go-%d", i)),
			Headers: []kgo.RecordHeader{{Key: "n", Value: []byte(strconv.Itoa(i))}},
		}, func(_ *kgo.Record, err error) { check(err) })
	}
	check(client.Flush(ctx))
}

func consume(ctx context.Context, bootstrap, topic string, count int, group string) {
	client, err := kgo.NewClient(secured(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())...)
	check(err)
	defer client.Close()
	out := json.NewEncoder(os.Stdout)
	for seen := 0; seen < count; {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			seen++
			check(out.Encode(map[string]any{"key": string(r.Key), "value": string(r.Value), "partition": r.Partition,
				"offset": r.Offset, "headers": len(r.Headers)}))
		})
	}
	check(client.CommitUncommittedOffsets(ctx))
}

// transact copies a topic exactly once, partition by partition. A GroupTransactSession commits the offsets of what was
// polled with what was produced, and rewinds when it has to abort; what it does not survive ends the program.
func share(bootstrap, topic, group string) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ShareGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.FetchMaxWait(200*time.Millisecond),
	)
	check(err)
	for {
		fetches := client.PollRecords(context.Background(), 100) // accepts the records of the poll before
		for _, failed := range fetches.Errors() {
			fmt.Fprintln(os.Stderr, "fetching:", failed.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) { fmt.Println(string(r.Value)) })
	}
}

func transact(bootstrap, input, output, group string, perTransaction int) {
	ctx := context.Background()
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.TransactionalID("copier-"+group),
		kgo.TransactionTimeout(10*time.Second),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.ConsumerGroup(group),
		kgo.InstanceID(group+"-1"),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.ConsumeTopics(input),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.FetchMaxWait(200*time.Millisecond),
	)
	check(err)
	for {
		fetches := session.PollRecords(ctx, perTransaction)
		for _, failed := range fetches.Errors() {
			fmt.Fprintln(os.Stderr, "fetching:", failed.Err)
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		check(session.Begin())
		promise := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(r *kgo.Record) {
			copied := &kgo.Record{Topic: output, Partition: r.Partition, Key: r.Key, Value: r.Value}
			session.Produce(ctx, copied, promise.Promise())
		})
		committed, err := session.End(ctx, promise.Err() == nil)
		check(err)
		if !committed {
			fmt.Fprintln(os.Stderr, "aborted")
		}
	}
}
