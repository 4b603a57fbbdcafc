// The story of a cell with franz-go.
package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func franzGo(given login) ([]string, error) {
	within, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	options, err := franzOptions(given)
	if err != nil {
		return nil, err
	}
	producer, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	err = franzSend(within, producer, plainValues)
	producer.Close()
	if err != nil {
		return nil, err
	}
	transactional, err := kgo.NewClient(append(options, kgo.TransactionalID(given.Topic))...)
	if err != nil {
		return nil, err
	}
	defer transactional.Close()
	for _, turn := range []struct {
		values []string
		end    kgo.TransactionEndTry
	}{{abortedValues, kgo.TryAbort}, {committedValues, kgo.TryCommit}} {
		if err := transactional.BeginTransaction(); err != nil {
			return nil, err
		}
		if err := franzSend(within, transactional, turn.values); err != nil {
			return nil, err
		}
		if err := transactional.EndTransaction(within, turn.end); err != nil {
			return nil, err
		}
	}
	return franzRead(within, given, options)
}

func franzOptions(given login) ([]kgo.Opt, error) {
	options := []kgo.Opt{kgo.SeedBrokers(given.Bootstrap), kgo.DefaultProduceTopic(given.Topic)}
	config, err := given.tlsConfig()
	if err != nil {
		return nil, err
	}
	if config != nil {
		options = append(options, kgo.DialTLSConfig(config))
	}
	var mechanism sasl.Mechanism
	switch given.Mechanism {
	case "":
		return options, nil
	case "PLAIN":
		mechanism = plain.Auth{User: given.User, Pass: given.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		mechanism = scram.Auth{User: given.User, Pass: given.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		mechanism = scram.Auth{User: given.User, Pass: given.Password}.AsSha512Mechanism()
	case "OAUTHBEARER":
		mechanism = oauth.Auth{Token: given.Token}.AsMechanism()
	default:
		return nil, fmt.Errorf("no mechanism %s", given.Mechanism)
	}
	return append(options, kgo.SASL(mechanism)), nil
}

func franzSend(within context.Context, producer *kgo.Client, values []string) error {
	for _, value := range values {
		if err := producer.ProduceSync(within, kgo.StringRecord(value)).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

func franzRead(within context.Context, given login, options []kgo.Opt) ([]string, error) {
	reader, err := kgo.NewClient(append(options,
		kgo.ConsumerGroup(given.Topic), kgo.ConsumeTopics(given.Topic), kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	found := []string{}
	for len(found) < wanted {
		fetches := reader.PollFetches(within)
		if err := fetches.Err0(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(it *kgo.Record) { found = append(found, string(it.Value)) })
	}
	return found, reader.CommitUncommittedOffsets(within)
}
