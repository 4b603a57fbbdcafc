"""Administration of Kafka clusters as a library: functions return values and print nothing."""
