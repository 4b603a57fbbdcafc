// A member of a group on ZooKeeper: the consumer group of wvanbergen/kafka, JSON a line to stdout.
//
// Arguments: ZOOKEEPER GROUP TOPIC. It prints {"started": id}, {"message": [topic, partition,
// offset, value, id]}, {"error"} and, after a line on stdin, {"stopped": true}.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"os"
	"regexp"
	"sync"
	"time"

	"github.com/Shopify/sarama"
	"github.com/wvanbergen/kafka/consumergroup"
)

var (
	output     = json.NewEncoder(os.Stdout)
	lock       sync.Mutex
	registered = regexp.MustCompile(`Consumer instance registered \((.*)\)`)
)

func say(line map[string]any) {
	lock.Lock()
	defer lock.Unlock()
	output.Encode(line)
}

// lines catches the id of the member, which only the log has.
type lines struct{ id chan string }

func (l lines) Write(text []byte) (int, error) {
	if found := registered.FindSubmatch(text); found != nil {
		select {
		case l.id <- string(found[1]):
		default:
		}
	}
	return os.Stderr.Write(text)
}

func main() {
	zookeeper, name, topic := os.Args[1], os.Args[2], os.Args[3]
	caught := lines{make(chan string, 1)}
	sarama.Logger = newLogger(caught)
	config := consumergroup.NewConfig()
	config.Zookeeper.Timeout = 2 * time.Second
	config.Offsets.Initial = sarama.OffsetOldest
	config.Offsets.CommitInterval = 300 * time.Millisecond
	config.Consumer.MaxWaitTime = 20 * time.Millisecond
	group, err := consumergroup.JoinConsumerGroup(name, []string{topic}, []string{zookeeper}, config)
	for err != nil {
		// Of two first members one fails: both create the group's znodes.
		say(map[string]any{"error": err.Error()})
		time.Sleep(100 * time.Millisecond)
		group, err = consumergroup.JoinConsumerGroup(name, []string{topic}, []string{zookeeper}, config)
	}
	id := <-caught.id
	say(map[string]any{"started": id})
	go func() {
		for err := range group.Errors() {
			say(map[string]any{"error": err.Error()})
		}
	}()
	go func() {
		bufio.NewReader(os.Stdin).ReadString('\n')
		if err := group.Close(); err != nil {
			say(map[string]any{"error": err.Error()})
		}
		say(map[string]any{"stopped": true})
		os.Exit(0)
	}()
	for it := range group.Messages() {
		say(map[string]any{"message": []any{it.Topic, it.Partition, it.Offset, string(it.Value), id}})
		group.CommitUpto(it)
	}
	select {}
}

func newLogger(to lines) *log.Logger {
	return log.New(to, "", log.LstdFlags|log.Lmicroseconds)
}
