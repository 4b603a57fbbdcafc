// The Go clients in every cell of tests/support/secured_clients.py: the argument names the client.
// Reads a login as JSON a line, runs all of them at the same time, and writes an outcome as JSON a
// line.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

const limit = 60 * time.Second

// What a client writes, outside and inside of transactions, and how much of it a group reads.
var plainValues, abortedValues, committedValues = []string{"p0", "p1", "p2"}, []string{"x"}, []string{"t0", "t1"}

var wanted = len(plainValues) + len(committedValues)

type login struct {
	Name, Bootstrap, Protocol, Mechanism, User, Password, Token, Topic string
	CaFile                                                             string `json:"ca_file"`
	ClientFile                                                         string `json:"client_file"`
}

type outcome struct {
	Name  string   `json:"name"`
	Found []string `json:"found"`
	Error string   `json:"error"`
}

func main() {
	story := map[string]func(login) ([]string, error){"franz-go": franzGo, "sarama": saramaStory}[os.Args[1]]
	outcomes := make(chan outcome)
	var running sync.WaitGroup
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var given login
		if err := json.Unmarshal(lines.Bytes(), &given); err != nil {
			panic(err)
		}
		running.Add(1)
		go func() {
			defer running.Done()
			outcomes <- run(story, given)
		}()
	}
	go func() { running.Wait(); close(outcomes) }()
	for each := range outcomes {
		line, _ := json.Marshal(each)
		fmt.Println(string(line))
	}
}

func run(story func(login) ([]string, error), given login) outcome {
	found, err := story(given)
	if err != nil {
		return outcome{given.Name, []string{}, err.Error()}
	}
	return outcome{given.Name, found, ""}
}

// tlsConfig is nil where the protocol has no TLS.
func (given login) tlsConfig() (*tls.Config, error) {
	if given.Protocol == "SASL_PLAINTEXT" {
		return nil, nil
	}
	pem, err := os.ReadFile(given.CaFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	config := &tls.Config{RootCAs: roots}
	if given.ClientFile != "" {
		pair, err := tls.LoadX509KeyPair(given.ClientFile, given.ClientFile)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
