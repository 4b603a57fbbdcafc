// A member of a group on ZooKeeper: the HighLevelConsumer of kafka-node 2, JSON a line to stdout.
//
// Arguments: ZOOKEEPER GROUP TOPIC. It prints {"started": id}, {"message": [topic, partition,
// offset, value, id]}, {"error"} and, after "shutdown" on stdin, {"stopped": true}.
"use strict";
const kafka = require("kafka-node");
const [zookeeper, groupId, topic] = process.argv.slice(2);
const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");
const client = new kafka.Client(zookeeper, "kafka-node", { sessionTimeout: 2000, spinDelay: 100 });
const consumer = new kafka.HighLevelConsumer(client, [{ topic }], {
  groupId, autoCommit: true, autoCommitIntervalMs: 300, fetchMaxWaitMs: 20,
  // Longer than a session that ends: after its last try it never takes part in a rebalance again.
  rebalanceRetry: { retries: 100, factor: 1, minTimeout: 200, maxTimeout: 200 },
});
consumer.on("registered", () => say({ started: consumer.id }));
consumer.on("rebalanced", () => say({ owned: consumer.topicPayloads.map((it) => +it.partition) }));
consumer.on("error", (error) => say({ error: String(error && error.message || error) }));
consumer.on("message", (it) => {
  say({ message: [it.topic, it.partition, it.offset, String(it.value), consumer.id] });
});
require("readline").createInterface({ input: process.stdin }).on("line", () => {
  // With true it would commit after it has given up its partitions.
  consumer.close(false, () => { say({ stopped: true }); process.exit(0); });
});
