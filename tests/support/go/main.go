// franz-go through what transactions have: arguments are a bootstrap address, a topic of one
// partition and one to copy to, and a transactional id (also the group's). Prints what it finds.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const copies = 40

var address, source, target, id = os.Args[1], os.Args[2], os.Args[3], os.Args[4]

func main() {
	within, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()

	first := client(kgo.TransactionalID(id))
	transaction(within, first, true, "a", "b")
	transaction(within, first, false, "c", "d")
	transaction(within, first, true, "e")
	fmt.Println("committed", read(within, 3, kgo.ReadCommitted()))
	fmt.Println("all", read(within, 5, kgo.ReadUncommitted()))
	for turn := 0; turn < 2*(copies-3); turn++ {
		transaction(within, first, turn%2 == 0, fmt.Sprint("turn", turn))
	}

	check(first.BeginTransaction())
	check(first.ProduceSync(within, record("zombie")).FirstErr())
	heir := client(kgo.TransactionalID(id))
	_, _, err := heir.ProducerID(within)
	for errors.Is(err, kerr.ConcurrentTransactions) { // the zombie's is being aborted
		time.Sleep(10 * time.Millisecond)
		_, _, err = heir.ProducerID(within)
	}
	check(err)
	err = first.EndTransaction(within, kgo.TryCommit)
	fmt.Println("fenced", errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch))
	heir.Close()
	first.Close()

	fmt.Println("copied", copyAll(within))
}

// copyAll consumes the topic in a group and produces it to another one, a transaction a poll.
func copyAll(within context.Context) int {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(address), kgo.TransactionalID(id+"-copy"), kgo.ConsumerGroup(id),
		kgo.ConsumeTopics(source), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DefaultProduceTopic(target),
		kgo.RequireStableFetchOffsets(),
	)
	check(err)
	defer session.Close()
	copied := 0
	for copied < copies {
		fetches := session.PollRecords(within, 7)
		check(fetches.Err0())
		check(session.Begin())
		found := 0
		fetches.EachRecord(func(it *kgo.Record) {
			found++
			session.Produce(within, &kgo.Record{Value: it.Value}, func(_ *kgo.Record, err error) { check(err) })
		})
		committed, err := session.End(within, kgo.TryCommit)
		check(err)
		if committed {
			copied += found
		}
	}
	return copied
}

func client(options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append(options, kgo.SeedBrokers(address), kgo.DefaultProduceTopic(source))...)
	check(err)
	return made
}

func record(value string) *kgo.Record { return kgo.StringRecord(value) }

func transaction(within context.Context, producer *kgo.Client, commits bool, values ...string) {
	check(producer.BeginTransaction())
	for _, value := range values {
		check(producer.ProduceSync(within, record(value)).FirstErr())
	}
	check(producer.EndTransaction(within, kgo.TransactionEndTry(commits)))
}

func read(within context.Context, count int, level kgo.IsolationLevel) []string {
	reader := client(kgo.FetchIsolationLevel(level), kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer reader.Close()
	found := []string{}
	for len(found) < count {
		fetches := reader.PollFetches(within)
		check(fetches.Err0())
		fetches.EachRecord(func(it *kgo.Record) { found = append(found, string(it.Value)) })
	}
	return found[:count]
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
