// The story of a cell with sarama.
package main

import (
	"context"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

func saramaStory(given login) ([]string, error) {
	config, err := saramaConfig(given)
	if err != nil {
		return nil, err
	}
	producer, err := sarama.NewSyncProducer([]string{given.Bootstrap}, config)
	if err != nil {
		return nil, err
	}
	err = saramaSend(producer, given.Topic, plainValues)
	producer.Close()
	if err != nil {
		return nil, err
	}
	if err := saramaTransact(given); err != nil {
		return nil, err
	}
	return saramaRead(given, config)
}

func saramaConfig(given login) (*sarama.Config, error) {
	config := sarama.NewConfig()
	config.Version = sarama.V2_7_0_0
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	tlsConfig, err := given.tlsConfig()
	if err != nil {
		return nil, err
	}
	config.Net.TLS.Enable, config.Net.TLS.Config = tlsConfig != nil, tlsConfig
	if given.Mechanism == "" {
		return config, nil
	}
	net := &config.Net.SASL
	net.Enable, net.Mechanism = true, sarama.SASLMechanism(given.Mechanism)
	net.User, net.Password = given.User, given.Password
	switch given.Mechanism {
	case "SCRAM-SHA-256":
		net.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{hash: scram.SHA256} }
	case "SCRAM-SHA-512":
		net.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{hash: scram.SHA512} }
	case "OAUTHBEARER":
		net.TokenProvider = tokens(given.Token)
	}
	return config, nil
}

// conversation is SCRAM as sarama wants it: the library has none of its own.
type conversation struct {
	hash scram.HashGeneratorFcn
	*scram.ClientConversation
}

func (it *conversation) Begin(user, password, authorizationID string) error {
	client, err := it.hash.NewClient(user, password, authorizationID)
	if err == nil {
		it.ClientConversation = client.NewConversation()
	}
	return err
}

type tokens string

func (it tokens) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(it)}, nil
}

func saramaSend(producer sarama.SyncProducer, topic string, values []string) error {
	for _, value := range values {
		message := &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)}
		if _, _, err := producer.SendMessage(message); err != nil {
			return err
		}
	}
	return nil
}

func saramaTransact(given login) error {
	config, err := saramaConfig(given)
	if err != nil {
		return err
	}
	config.Producer.Idempotent, config.Net.MaxOpenRequests = true, 1
	config.Producer.Transaction.ID = given.Topic
	producer, err := sarama.NewSyncProducer([]string{given.Bootstrap}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	for _, turn := range []struct {
		values []string
		end    func() error
	}{{abortedValues, producer.AbortTxn}, {committedValues, producer.CommitTxn}} {
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		if err := saramaSend(producer, given.Topic, turn.values); err != nil {
			return err
		}
		if err := turn.end(); err != nil {
			return err
		}
	}
	return nil
}

type reader struct {
	found []string
	done  context.CancelFunc
}

func (*reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (it *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		it.found = append(it.found, string(message.Value))
		session.MarkMessage(message, "")
		if len(it.found) == wanted {
			session.Commit()
			it.done()
		}
	}
	return nil
}

func saramaRead(given login, config *sarama.Config) ([]string, error) {
	group, err := sarama.NewConsumerGroup([]string{given.Bootstrap}, given.Topic, config)
	if err != nil {
		return nil, err
	}
	defer group.Close()
	within, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	member := &reader{done: cancel}
	for within.Err() == nil {
		if err := group.Consume(within, []string{given.Topic}, member); err != nil && within.Err() == nil {
			return nil, err
		}
	}
	return member.found, nil
}
