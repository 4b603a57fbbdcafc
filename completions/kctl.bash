# Completion of kctl for bash; made by `kctl completion bash`.
_kctl() {
    local line="${COMP_LINE:0:COMP_POINT}" cur="" path="" word="" last="" option="" skip="" count=0
    local -a words=() connect=()
    read -ra words <<< "$line"
    [[ "$line" == *[[:space:]] ]] || { cur="${words[-1]}"; unset "words[-1]"; }
    for word in "${words[@]:1}"; do
        if [[ -n "$skip" ]]; then
            case "$skip" in -b|--bootstrap-server|-X|--property|-C|--profile|--command-config) connect+=("$skip" "$word");; esac
            skip=""
            continue
        fi
        case "$word" in
            --abort.on.send.failure|--acks|--acl|--append|--backup|--batch|--before|--bootstrap-server|--broker|--broker-list|--brokers|--by|--by-duration|--catalog|--catalog-table|--client-id|--codec|--columns|--command-config|--compact-to|--compare|--compression|--conf|--config|--confirm|--consume|--consumer.config|--coordinator-epoch|--cut|--data-dir|--dead-brokers|--dead-letters|--delete-config|--every|--exclude|--exclude-config|--expect-cluster|--extract|--fail-above|--file|--file-size|--files|--filter|--flow|--for|--format|--from|--from-config|--from-file|--from-line|--grep|--group|--groups|--header|--host|--in|--input|--interval|--into|--isolation|--iterations|--jobs|--jq|--key|--key-as|--key-message|--key-pattern|--key-schema|--key-separator|--leader-epoch|--limit|--listener|--log-file|--log-file-size|--log-format|--log-level|--mask|--master|--max|--max-lifetime|--max-message-size|--max-messages|--max-moves|--mechanism|--message|--metrics|--metrics-ca|--metrics-port|--metrics-tls|--metrics-token-file|--mirror|--mm2-config|--mutations|--name|--null|--num.streams|--offset|--offset-json-file|--offset.commit.interval.ms|--on-damage|--on-loss|--on-undecodable|--order-by|--out|--output|--owner|--partition|--partition-by|--partitions|--password-command|--password-env|--password-file|--password-keyring|--port|--principal|--probe-interval|--probe-topic|--produce|--producer-id|--producer.config|--profile|--property|--prune-topics|--quota|--racks|--ready-file|--reassignment-json-file|--rebuild|--registry|--rename|--renewer|--replica-alter-log-dirs-throttle|--replica-assignment|--replication-factor|--request|--retention|--rollback|--save-in|--schema|--seed-topic|--segment-size|--set|--settle|--shift-by|--skip|--slow-requests|--source|--source-alias|--source-config|--source-profile|--state|--stop|--subject|--subtract|--tail|--target|--target-alias|--target-config|--target-profile|--throttle|--time|--timeout|--timestamp|--to|--to-datetime|--to-offset|--topic|--topics|--topics-to-move-json-file|--transactional-id|--transform|--truncate-to|--type|--undo-file|--user|--username|--value|--value-as|--version|--whitelist|--window|--worker|--zookeeper|--zookeeper-port|-C|-D|-H|-O|-S|-X|-b|-c|-d|-f|-g|-i|-j|-k|-l|-m|-o|-p|-r|-t|-z) skip="$word";;
            -*) ;;
            *) case "$path" in ""|topic|config|group|txn|acl|user|quota|token|records|elect|reassign|throttle|cluster|metrics|broker|mirror|link|profile) path="${path:+$path }$word";;
                *) (( count++ )); last="$word";; esac;;
        esac
    done
    option="$skip"
    local offer=""
    if [[ -n "$option" ]]; then
        case "$path:$option" in
            "serve:--data-dir"|"serve:-D"|"serve:--config"|"serve:--ready-file"|"serve:--metrics-tls"|"serve:--metrics-token-file"|"serve:--log-file"|"apply:--command-config"|"top:--metrics-token-file"|"top:--metrics-ca"|"top:--command-config"|"produce:--file"|"produce:-f"|"produce:--schema"|"produce:--command-config"|"consume:--jq"|"consume:--schema"|"consume:--command-config"|"dump-log:--schema"|"dump-log:--key-schema"|"log-stats:--command-config"|"verify-log:--compare"|"verify-log:--command-config"|"repair-log:--backup"|"repair-log:--extract"|"repair-log:--command-config"|"export:--out"|"export:--schema"|"export:--dead-letters"|"export:--metrics-tls"|"export:--metrics-token-file"|"export:--command-config"|"import:--into"|"import:--command-config"|"api:--command-config"|"man:--out"|"topic purge:--command-config"|"topic offsets-07:--command-config"|"topic create:--command-config"|"topic list:--command-config"|"topic describe:--command-config"|"topic alter:--command-config"|"topic delete:--command-config"|"config describe:--command-config"|"config alter:--command-config"|"group reset-offsets:--from-file"|"group reset-offsets:--command-config"|"group export-offsets:--command-config"|"group import-offsets:--command-config"|"group clone-offsets:--command-config"|"group delete-offsets:--command-config"|"group describe:--command-config"|"group lag:--command-config"|"group migrate:--undo-file"|"group migrate:--rollback"|"group migrate:--command-config"|"group rebalance-check:--command-config"|"group list:--command-config"|"group delete:--command-config"|"txn list:--command-config"|"txn describe:--command-config"|"txn hanging:--command-config"|"txn abort:--command-config"|"acl list:--command-config"|"acl add:--command-config"|"acl remove:--command-config"|"acl check:--command-config"|"user list:--command-config"|"user create:--password-file"|"user create:--command-config"|"user passwd:--password-file"|"user passwd:--command-config"|"user delete:--command-config"|"quota list:--command-config"|"quota top:--metrics-token-file"|"quota top:--metrics-ca"|"quota top:--command-config"|"quota set:--command-config"|"quota remove:--command-config"|"token list:--command-config"|"token create:--command-config"|"token renew:--command-config"|"token expire:--command-config"|"records delete:--offset-json-file"|"records delete:--command-config"|"elect preferred:--command-config"|"elect unclean:--command-config"|"reassign plan:--out"|"reassign plan:--command-config"|"reassign execute:--command-config"|"reassign watch:--command-config"|"reassign verify:--command-config"|"reassign cancel:--command-config"|"reassign list:--command-config"|"reassign kafka:--reassignment-json-file"|"reassign kafka:--topics-to-move-json-file"|"reassign kafka:--command-config"|"throttle show:--command-config"|"throttle set:--command-config"|"throttle sweep:--command-config"|"cluster describe:--command-config"|"cluster health:--command-config"|"cluster quorum:--command-config"|"cluster features:--command-config"|"cluster upgrade-features:--command-config"|"metrics serve:--metrics-tls"|"metrics serve:--metrics-token-file"|"metrics serve:--command-config"|"broker describe:--command-config"|"broker decommission:--stop"|"broker decommission:--command-config"|"broker demote:--undo-file"|"broker demote:--command-config"|"broker list:--data-dir"|"broker list:-D"|"broker stop:--data-dir"|"broker stop:-D"|"broker kill:--data-dir"|"broker kill:-D"|"broker restart:--data-dir"|"broker restart:-D"|"mirror run:--source-config"|"mirror run:--target-config"|"mirror run:--mm2-config"|"mirror run:--consumer.config"|"mirror run:--producer.config"|"mirror run:--metrics-tls"|"mirror run:--metrics-token-file"|"mirror plan:--source-config"|"mirror plan:--target-config"|"mirror verify:--source-config"|"mirror verify:--target-config"|"mirror verify:--state"|"mirror status:--source-config"|"mirror status:--target-config"|"mirror translate:--source-config"|"mirror translate:--target-config"|"mirror switch:--source-config"|"mirror switch:--target-config"|"mirror watch:--source-config"|"mirror watch:--target-config"|"link create:--from-config"|"link create:--command-config"|"link list:--command-config"|"link describe:--command-config"|"link failover:--command-config"|"link resume:--command-config"|"profile add:--password-file"|"profile login:--save-in"|"profile login:--password-file") offer="@files";;
            "serve:--log-format") offer="text json";;
            "apply:--profile"|"apply:-C"|"top:--profile"|"top:-C"|"produce:--profile"|"produce:-C"|"consume:--profile"|"consume:-C"|"log-stats:--profile"|"log-stats:-C"|"verify-log:--profile"|"verify-log:-C"|"repair-log:--profile"|"repair-log:-C"|"export:--profile"|"export:-C"|"import:--profile"|"import:-C"|"api:--profile"|"api:-C"|"topic purge:--profile"|"topic purge:-C"|"topic offsets-07:--profile"|"topic offsets-07:-C"|"topic create:--profile"|"topic create:-C"|"topic list:--profile"|"topic list:-C"|"topic describe:--profile"|"topic describe:-C"|"topic alter:--profile"|"topic alter:-C"|"topic delete:--profile"|"topic delete:-C"|"config describe:--profile"|"config describe:-C"|"config alter:--profile"|"config alter:-C"|"group reset-offsets:--profile"|"group reset-offsets:-C"|"group export-offsets:--profile"|"group export-offsets:-C"|"group import-offsets:--profile"|"group import-offsets:-C"|"group clone-offsets:--profile"|"group clone-offsets:-C"|"group delete-offsets:--profile"|"group delete-offsets:-C"|"group describe:--profile"|"group describe:-C"|"group lag:--profile"|"group lag:-C"|"group migrate:--profile"|"group migrate:-C"|"group rebalance-check:--profile"|"group rebalance-check:-C"|"group list:--profile"|"group list:-C"|"group delete:--profile"|"group delete:-C"|"txn list:--profile"|"txn list:-C"|"txn describe:--profile"|"txn describe:-C"|"txn hanging:--profile"|"txn hanging:-C"|"txn abort:--profile"|"txn abort:-C"|"acl list:--profile"|"acl list:-C"|"acl add:--profile"|"acl add:-C"|"acl remove:--profile"|"acl remove:-C"|"acl check:--profile"|"acl check:-C"|"user list:--profile"|"user list:-C"|"user create:--profile"|"user create:-C"|"user passwd:--profile"|"user passwd:-C"|"user delete:--profile"|"user delete:-C"|"quota list:--profile"|"quota list:-C"|"quota top:--profile"|"quota top:-C"|"quota set:--profile"|"quota set:-C"|"quota remove:--profile"|"quota remove:-C"|"token list:--profile"|"token list:-C"|"token create:--profile"|"token create:-C"|"token renew:--profile"|"token renew:-C"|"token expire:--profile"|"token expire:-C"|"records delete:--profile"|"records delete:-C"|"elect preferred:--profile"|"elect preferred:-C"|"elect unclean:--profile"|"elect unclean:-C"|"reassign plan:--profile"|"reassign plan:-C"|"reassign execute:--profile"|"reassign execute:-C"|"reassign watch:--profile"|"reassign watch:-C"|"reassign verify:--profile"|"reassign verify:-C"|"reassign cancel:--profile"|"reassign cancel:-C"|"reassign list:--profile"|"reassign list:-C"|"reassign kafka:--profile"|"reassign kafka:-C"|"throttle show:--profile"|"throttle show:-C"|"throttle set:--profile"|"throttle set:-C"|"throttle sweep:--profile"|"throttle sweep:-C"|"cluster describe:--profile"|"cluster describe:-C"|"cluster health:--profile"|"cluster health:-C"|"cluster quorum:--profile"|"cluster quorum:-C"|"cluster features:--profile"|"cluster features:-C"|"cluster upgrade-features:--profile"|"cluster upgrade-features:-C"|"metrics serve:--profile"|"metrics serve:-C"|"broker describe:--profile"|"broker describe:-C"|"broker decommission:--profile"|"broker decommission:-C"|"broker demote:--profile"|"broker demote:-C"|"link create:--profile"|"link create:-C"|"link list:--profile"|"link list:-C"|"link describe:--profile"|"link describe:-C"|"link failover:--profile"|"link failover:-C"|"link resume:--profile"|"link resume:-C") offer="@profiles";;
            "apply:--output"|"apply:-o"|"top:--output"|"top:-o"|"produce:--output"|"produce:-o"|"consume:--output"|"consume:-o"|"log-stats:--output"|"log-stats:-o"|"verify-log:--output"|"verify-log:-o"|"repair-log:--output"|"repair-log:-o"|"export:--output"|"export:-o"|"import:--output"|"import:-o"|"api:--output"|"api:-o"|"topic purge:--output"|"topic purge:-o"|"topic offsets-07:--output"|"topic offsets-07:-o"|"topic create:--output"|"topic create:-o"|"topic list:--output"|"topic list:-o"|"topic describe:--output"|"topic describe:-o"|"topic alter:--output"|"topic alter:-o"|"topic delete:--output"|"topic delete:-o"|"config describe:--output"|"config describe:-o"|"config alter:--output"|"config alter:-o"|"group reset-offsets:--output"|"group reset-offsets:-o"|"group import-offsets:--output"|"group import-offsets:-o"|"group clone-offsets:--output"|"group clone-offsets:-o"|"group delete-offsets:--output"|"group delete-offsets:-o"|"group describe:--output"|"group describe:-o"|"group lag:--output"|"group lag:-o"|"group migrate:--output"|"group migrate:-o"|"group rebalance-check:--output"|"group rebalance-check:-o"|"group list:--output"|"group list:-o"|"group delete:--output"|"group delete:-o"|"txn list:--output"|"txn list:-o"|"txn describe:--output"|"txn describe:-o"|"txn hanging:--output"|"txn hanging:-o"|"txn abort:--output"|"txn abort:-o"|"acl list:--output"|"acl list:-o"|"acl add:--output"|"acl add:-o"|"acl remove:--output"|"acl remove:-o"|"acl check:--output"|"acl check:-o"|"user list:--output"|"user list:-o"|"user create:--output"|"user create:-o"|"user passwd:--output"|"user passwd:-o"|"user delete:--output"|"user delete:-o"|"quota list:--output"|"quota list:-o"|"quota top:--output"|"quota top:-o"|"quota set:--output"|"quota set:-o"|"quota remove:--output"|"quota remove:-o"|"token list:--output"|"token list:-o"|"token create:--output"|"token create:-o"|"token renew:--output"|"token renew:-o"|"token expire:--output"|"token expire:-o"|"records delete:--output"|"records delete:-o"|"elect preferred:--output"|"elect preferred:-o"|"elect unclean:--output"|"elect unclean:-o"|"reassign plan:--output"|"reassign plan:-o"|"reassign execute:--output"|"reassign execute:-o"|"reassign watch:--output"|"reassign watch:-o"|"reassign verify:--output"|"reassign verify:-o"|"reassign cancel:--output"|"reassign cancel:-o"|"reassign list:--output"|"reassign list:-o"|"reassign kafka:--output"|"reassign kafka:-o"|"throttle show:--output"|"throttle show:-o"|"throttle set:--output"|"throttle set:-o"|"throttle sweep:--output"|"throttle sweep:-o"|"cluster describe:--output"|"cluster describe:-o"|"cluster health:--output"|"cluster health:-o"|"cluster quorum:--output"|"cluster quorum:-o"|"cluster features:--output"|"cluster features:-o"|"cluster upgrade-features:--output"|"cluster upgrade-features:-o"|"broker describe:--output"|"broker describe:-o"|"broker decommission:--output"|"broker decommission:-o"|"broker demote:--output"|"broker demote:-o"|"broker list:--output"|"broker list:-o"|"broker stop:--output"|"broker stop:-o"|"broker kill:--output"|"broker kill:-o"|"broker restart:--output"|"broker restart:-o"|"mirror run:--output"|"mirror run:-o"|"mirror plan:--output"|"mirror plan:-o"|"mirror verify:--output"|"mirror verify:-o"|"mirror status:--output"|"mirror status:-o"|"mirror translate:--output"|"mirror translate:-o"|"mirror switch:--output"|"mirror switch:-o"|"mirror watch:--output"|"mirror watch:-o"|"link create:--output"|"link create:-o"|"link list:--output"|"link list:-o"|"link describe:--output"|"link describe:-o"|"link failover:--output"|"link failover:-o"|"link resume:--output"|"link resume:-o"|"profile list:--output"|"profile list:-o"|"profile show:--output"|"profile show:-o") offer="table json ndjson yaml csv name";;
            "produce:--input"|"produce:-i") offer="lines ndjson whole";;
            "produce:--acks") offer="all 1 0";;
            "produce:--compression"|"produce:-z"|"import:--compression"|"import:-z") offer="none gzip snappy lz4 zstd";;
            "produce:--value"|"consume:--value") offer="raw json avro protobuf";;
            "consume:--group"|"consume:-g"|"dump-log:--group"|"dump-log:-g"|"group import-offsets:--group"|"group import-offsets:-g") offer="@groups";;
            "consume:--isolation"|"export:--isolation") offer="read_uncommitted read_committed";;
            "dump-log:--format"|"dump-log:-o") offer="text json ndjson kafka";;
            "dump-log:--key-as"|"dump-log:--value-as") offer="string json int hex avro protobuf";;
            "export:--format"|"export:-f") offer="parquet orc csv ndjson delta iceberg";;
            "export:--value") offer="raw string json avro protobuf";;
            "export:--key") offer="raw string";;
            "export:--compression") offer="zstd snappy lz4 none";;
            "export:--on-damage") offer="skip fail";;
            "export:--on-undecodable") offer="keep fail";;
            "import:--order-by") offer="timestamp offset";;
            "import:--format"|"import:-f") offer="parquet orc csv ndjson";;
            "api:--broker") offer="@brokers";;
            "group reset-offsets:--topic"|"group reset-offsets:-t"|"group export-offsets:--topic"|"group export-offsets:-t"|"group clone-offsets:--topic"|"group clone-offsets:-t"|"group delete-offsets:--topic"|"group delete-offsets:-t"|"txn hanging:--topic"|"txn abort:--topic"|"reassign plan:--topic"|"reassign plan:-t"|"metrics serve:--probe-topic") offer="@topics";;
            "txn list:--expect-cluster"|"txn describe:--expect-cluster"|"txn hanging:--expect-cluster"|"txn abort:--expect-cluster") offer="@ids";;
            "reassign plan:--by") offer="size count leaders";;
            "reassign plan:--dead-brokers"|"broker decommission:--dead-brokers"|"broker demote:--dead-brokers") offer="refuse keep evacuate";;
            "mirror run:--on-loss") offer="stop skip restart";;
            "mirror verify:--compare") offer="auto records last-values";;
            "link resume:--on-loss") offer="stop restart";;
            "profile add:--confirm") offer="yes by-name";;
            "profile login:--password-command") offer="@commands";;
        esac
    elif [[ "$cur" == -* ]]; then
        case "$path" in
            "serve") offer="--acl --brokers --config --data-dir --durable --help --kafka-0.7 --listener --log-file --log-file-size --log-format --log-level --metrics-port --metrics-tls --metrics-token-file --no-zookeeper --port --racks --ready-file --seed-topic --set --slow-requests --tls --user --zookeeper --zookeeper-port";;
            "apply") offer="--bootstrap-server --check --command-config --dry-run --expect-cluster --help --output --profile --property --prune-acls --prune-configs --prune-topics --timeout --yes";;
            "top") offer="--bootstrap-server --command-config --every --expect-cluster --help --metrics --metrics-ca --metrics-token-file --once --output --profile --property --timeout";;
            "produce") offer="--acks --bootstrap-server --broker-list --command-config --compression --dry-run --expect-cluster --file --from-line --header --help --input --key --key-separator --message --null --output --partition --profile --property --registry --schema --subject --timeout --timestamp --transactional-id --value --zookeeper";;
            "consume") offer="--bootstrap-server --command-config --exit --expect-cluster --format --from-beginning --grep --group --header --help --isolation --jq --key --max-messages --message --offset --output --partition --profile --property --read-committed --registry --schema --show-key --subject --tail --timeout --value --zookeeper";;
            "dump-log") offer="--cluster-metadata-decoder --conf --deep-iteration --files --follow --format --group --header --help --hex --index-sanity-check --key --key-as --key-message --key-pattern --key-schema --leader-epoch --limit --master --max-message-size --message --offset --offsets-decoder --only-aborted --only-control --print-data-log --producer-id --raw --schema --share-group-state-decoder --spark --stats --tail --transaction-log-decoder --transactional-id --value-as --verify-index-only --where";;
            "log-stats") offer="--bootstrap-server --by-partition --command-config --expect-cluster --help --output --plot --profile --property --timeout --topic";;
            "verify-log") offer="--bootstrap-server --command-config --compare --conf --expect-cluster --explain --help --jobs --master --output --profile --property --quick --replicas --spark --timeout";;
            "repair-log") offer="--apply --backup --bootstrap-server --codec --command-config --cut --drop-recovery-point --expect-cluster --extract --from --help --key --key-pattern --offset --output --profile --property --rebuild --timeout --truncate-to";;
            "export") offer="--bootstrap-server --catalog --catalog-table --columns --command-config --compact-to --compression --conf --dead-letters --every --expect-cluster --explain --file-size --follow --format --help --isolation --jobs --key --latest-per-key --master --message --metrics-port --metrics-tls --metrics-token-file --offset --on-damage --on-undecodable --out --output --partition --partition-by --profile --property --registry --retention --schema --spark --subject --timeout --topic --value";;
            "import") offer="--bootstrap-server --command-config --compression --conf --dry-run --expect-cluster --format --help --into --jobs --master --null --order-by --output --partitions --profile --property --repartition --segment-size --skip --spark --timeout --topic --yes";;
            "api") offer="--bootstrap-server --broker --command-config --dry-run --expect-cluster --help --list --output --profile --property --timeout --version --yes";;
            "demo") offer="--help --keep";;
            "completion") offer="--help";;
            "man") offer="--help --out";;
            "help") offer="--help";;
            "version") offer="--help";;
            "topic purge") offer="--before --bootstrap-server --command-config --dry-run --expect-cluster --help --output --profile --property --timeout --yes";;
            "topic offsets-07") offer="--bootstrap-server --command-config --expect-cluster --help --max --output --profile --property --time --timeout";;
            "topic create") offer="--bootstrap-server --command-config --config --dry-run --expect-cluster --help --if-not-exists --output --partitions --profile --property --replica-assignment --replication-factor --timeout";;
            "topic list") offer="--at-min-isr --bootstrap-server --command-config --expect-cluster --help --internal --output --profile --property --size --timeout --unavailable --under-min-isr --under-replicated";;
            "topic describe") offer="--at-min-isr --bootstrap-server --command-config --expect-cluster --help --internal --offsets --output --plot --profile --property --size --timeout --unavailable --under-min-isr --under-replicated";;
            "topic alter") offer="--bootstrap-server --command-config --config --delete-config --dry-run --expect-cluster --help --output --partitions --profile --property --timeout --yes";;
            "topic delete") offer="--bootstrap-server --command-config --dry-run --expect-cluster --help --if-exists --output --profile --property --timeout --yes";;
            "config describe") offer="--all --bootstrap-server --command-config --expect-cluster --help --output --profile --property --timeout";;
            "config alter") offer="--append --bootstrap-server --command-config --config --delete-config --dry-run --expect-cluster --help --output --profile --property --subtract --timeout --yes";;
            "group reset-offsets") offer="--all-topics --bootstrap-server --by-duration --command-config --dry-run --expect-cluster --from-file --help --output --profile --property --shift-by --timeout --to-current --to-datetime --to-earliest --to-latest --to-offset --topic --yes --zookeeper";;
            "group export-offsets") offer="--bootstrap-server --command-config --expect-cluster --format --help --profile --property --timeout --topic --zookeeper";;
            "group import-offsets") offer="--bootstrap-server --command-config --dry-run --expect-cluster --format --group --help --output --profile --property --timeout --yes --zookeeper";;
            "group clone-offsets") offer="--bootstrap-server --command-config --dry-run --expect-cluster --help --output --profile --property --timeout --topic --yes";;
            "group delete-offsets") offer="--all-topics --bootstrap-server --command-config --dry-run --expect-cluster --help --output --profile --property --timeout --topic --yes";;
            "group describe") offer="--bootstrap-server --by-topic --command-config --every --expect-cluster --help --members --output --profile --property --timeout --watch --zookeeper";;
            "group lag") offer="--bootstrap-server --by-partition --command-config --every --expect-cluster --fail-above --help --output --plot --profile --property --timeout --watch --window";;
            "group migrate") offer="--bootstrap-server --command-config --dry-run --expect-cluster --help --mirror --output --profile --property --rollback --timeout --to --undo-file --yes --zookeeper";;
            "group rebalance-check") offer="--bootstrap-server --command-config --expect-cluster --help --output --profile --property --timeout --zookeeper";;
            "group list") offer="--bootstrap-server --command-config --expect-cluster --help --output --profile --property --state --timeout --type --zookeeper";;
            "group delete") offer="--bootstrap-server --command-config --dry-run --expect-cluster --help --output --profile --property --timeout --yes --zookeeper";;
            "txn list") offer="--bootstrap-server --command-config --expect-cluster --help --output --profile --property --state --timeout";;
            "txn describe") offer="--bootstrap-server --command-config --expect-cluster --help --output --profile --property --timeout";;
            "txn hanging") offer="--bootstrap-server --command-config --expect-cluster --help --output --profile --property --timeout --topic";;
            "txn abort") offer="--bootstrap-server --command-config --coordinator-epoch --dry-run --expect-cluster --help --output --partition --producer-id --profile --property --timeout --topic --yes";;
            "acl list") offer="--bootstrap-server --command-config --expect-cluster --help --output --principal --profile --property --timeout";;
            "acl add") offer="--bootstrap-server --command-config --consumer --deny --dry-run --expect-cluster --help --host --idempotent --output --producer --profile --property --timeout";;
            "acl remove") offer="--bootstrap-server --command-config --consumer --deny --dry-run --expect-cluster --help --host --idempotent --output --producer --profile --property --timeout --yes";;
            "acl check") offer="--bootstrap-server --command-config --expect-cluster --from --help --output --profile --property --timeout";;
            "user list") offer="--bootstrap-server --command-config --expect-cluster --help --output --profile --property --timeout";;
            "user create") offer="--bootstrap-server --command-config --dry-run --expect-cluster --help --iterations --mechanism --output --password-file --profile --property --timeout";;
            "user passwd") offer="--bootstrap-server --command-config --dry-run --expect-cluster --help --output --password-file --profile --property --timeout";;
            "user delete") offer="--bootstrap-server --command-config --dry-run --expect-cluster --help --mechanism --output --profile --property --timeout --yes";;
            "quota list") offer="--bootstrap-server --client-id --command-config --default-client-id --default-user --expect-cluster --help --output --profile --property --timeout --user";;
            "quota top") offer="--bootstrap-server --command-config --every --expect-cluster --help --metrics --metrics-ca --metrics-token-file --once --output --profile --property --timeout";;
            "quota set") offer="--bootstrap-server --client-id --command-config --consume --default-client-id --default-user --dry-run --expect-cluster --help --mutations --output --produce --profile --property --request --timeout --user";;
            "quota remove") offer="--bootstrap-server --client-id --command-config --default-client-id --default-user --dry-run --expect-cluster --help --output --profile --property --quota --timeout --user --yes";;
            "token list") offer="--bootstrap-server --command-config --expect-cluster --help --output --owner --profile --property --timeout";;
            "token create") offer="--bootstrap-server --command-config --dry-run --expect-cluster --help --max-lifetime --output --profile --property --renewer --timeout";;
            "token renew") offer="--bootstrap-server --command-config --dry-run --expect-cluster --for --help --output --profile --property --timeout";;
            "token expire") offer="--bootstrap-server --command-config --dry-run --expect-cluster --help --in --output --profile --property --timeout --yes";;
            "records delete") offer="--before --bootstrap-server --command-config --dry-run --expect-cluster --help --offset-json-file --output --profile --property --timeout --yes";;
            "elect preferred") offer="--all --bootstrap-server --command-config --dry-run --expect-cluster --help --output --profile --property --timeout";;
            "elect unclean") offer="--all --bootstrap-server --command-config --dry-run --expect-cluster --help --output --profile --property --timeout --yes";;
            "reassign plan") offer="--bootstrap-server --brokers --by --command-config --dead-brokers --expect-cluster --help --max-moves --out --output --plot --profile --property --throttle --timeout --topic --zookeeper";;
            "reassign execute") offer="--additional --batch --bootstrap-server --command-config --dry-run --expect-cluster --help --output --profile --property --throttle --timeout --wait --yes --zookeeper";;
            "reassign watch") offer="--bootstrap-server --command-config --expect-cluster --help --interval --once --output --profile --property --timeout";;
            "reassign verify") offer="--bootstrap-server --command-config --expect-cluster --help --output --preserve-throttles --profile --property --timeout --zookeeper";;
            "reassign cancel") offer="--all --bootstrap-server --command-config --dry-run --expect-cluster --help --output --profile --property --timeout --yes";;
            "reassign list") offer="--bootstrap-server --command-config --expect-cluster --help --output --profile --property --timeout --zookeeper";;
            "reassign kafka") offer="--additional --bootstrap-server --broker-list --cancel --command-config --disable-rack-aware --execute --expect-cluster --generate --help --list --output --preserve-throttles --profile --property --reassignment-json-file --replica-alter-log-dirs-throttle --throttle --timeout --topics-to-move-json-file --verify --zookeeper";;
            "throttle show") offer="--bootstrap-server --command-config --expect-cluster --help --output --profile --property --timeout --zookeeper";;
            "throttle set") offer="--bootstrap-server --command-config --dry-run --expect-cluster --help --output --profile --property --timeout --zookeeper";;
            "throttle sweep") offer="--all --bootstrap-server --command-config --dry-run --expect-cluster --force --help --output --profile --property --timeout --yes --zookeeper";;
            "cluster describe") offer="--bootstrap-server --command-config --expect-cluster --help --output --profile --property --timeout";;
            "cluster health") offer="--bootstrap-server --command-config --expect-cluster --help --nagios --output --profile --property --settle --timeout";;
            "cluster quorum") offer="--bootstrap-server --command-config --expect-cluster --help --output --profile --property --timeout";;
            "cluster features") offer="--bootstrap-server --command-config --expect-cluster --help --output --profile --property --timeout";;
            "cluster upgrade-features") offer="--bootstrap-server --command-config --dry-run --expect-cluster --help --output --profile --property --timeout --yes";;
            "metrics serve") offer="--bootstrap-server --command-config --create-probe-topic --expect-cluster --help --interval --metrics-tls --metrics-token-file --port --probe-interval --probe-topic --profile --property --timeout";;
            "broker describe") offer="--bootstrap-server --command-config --expect-cluster --help --output --profile --property --timeout";;
            "broker decommission") offer="--batch --bootstrap-server --command-config --dead-brokers --dry-run --expect-cluster --help --output --profile --property --stop --throttle --timeout --yes";;
            "broker demote") offer="--bootstrap-server --command-config --dead-brokers --dry-run --expect-cluster --help --output --profile --property --timeout --undo-file --yes";;
            "broker list") offer="--data-dir --help --output";;
            "broker stop") offer="--data-dir --help --output";;
            "broker kill") offer="--data-dir --help --output";;
            "broker restart") offer="--data-dir --help --output";;
            "mirror run") offer="--abort.on.send.failure --at-least-once --consumer.config --exclude --exclude-config --filter --flow --from --groups --help --mask --mesh --metrics-port --metrics-tls --metrics-token-file --mm2-config --mm2-topics --name --num.streams --offset.commit.interval.ms --on-loss --once --output --producer.config --rename --replication-factor --ring --source --source-alias --source-config --source-profile --target --target-alias --target-config --target-profile --throttle --timeout --topics --transform --whitelist --worker";;
            "mirror plan") offer="--exclude --exclude-config --from --help --output --rename --replication-factor --source --source-alias --source-config --source-profile --target --target-config --target-profile --timeout --topics";;
            "mirror verify") offer="--compare --conf --exclude --from --help --ignore-timestamps --jobs --master --mesh --name --offset --output --rename --ring --source --source-alias --source-config --source-profile --spark --state --target --target-config --target-profile --timeout --topics";;
            "mirror status") offer="--from --help --name --output --source --source-config --source-profile --target --target-config --target-profile --timeout";;
            "mirror translate") offer="--from --help --name --offset --output --source --source-config --source-profile --target --target-config --target-profile --timeout --to-source";;
            "mirror switch") offer="--back --dry-run --from --help --name --output --source --source-config --source-profile --target --target-config --target-profile --timeout --yes";;
            "mirror watch") offer="--every --from --help --name --output --source --source-config --source-profile --target --target-config --target-profile --timeout --until-caught-up";;
            "link create") offer="--bootstrap-server --command-config --dry-run --expect-cluster --from --from-config --help --output --profile --property --replace --replication-factor --source --timeout --yes";;
            "link list") offer="--bootstrap-server --command-config --expect-cluster --help --output --profile --property --timeout";;
            "link describe") offer="--bootstrap-server --command-config --expect-cluster --help --output --profile --property --timeout";;
            "link failover") offer="--bootstrap-server --command-config --dry-run --expect-cluster --help --output --profile --property --timeout --yes";;
            "link resume") offer="--bootstrap-server --command-config --dry-run --expect-cluster --help --on-loss --output --profile --property --timeout --yes";;
            "profile add") offer="--bootstrap-server --confirm --expect-cluster --help --password-command --password-env --password-file --password-keyring --property --read-only --replace --timeout";;
            "profile login") offer="--help --password-command --password-env --password-file --password-keyring --save-in --username";;
            "profile use") offer="--help";;
            "profile list") offer="--help --output";;
            "profile show") offer="--help --output";;
            "profile remove") offer="--help";;
            *) offer="--help --help-json --version";;
        esac
    else
        case "$path:$count" in
            ":0") offer="serve topic config apply group top txn acl user quota token produce consume records elect reassign throttle cluster metrics broker dump-log log-stats verify-log repair-log export import mirror link api profile demo completion man help version";;
            topic:0) offer="purge offsets-07 create list describe alter delete";;
            config:0) offer="describe alter";;
            group:0) offer="reset-offsets export-offsets import-offsets clone-offsets delete-offsets describe lag migrate rebalance-check list delete";;
            txn:0) offer="list describe hanging abort";;
            acl:0) offer="list add remove check";;
            user:0) offer="list create passwd delete";;
            quota:0) offer="list top set remove";;
            token:0) offer="list create renew expire";;
            records:0) offer="delete";;
            elect:0) offer="preferred unclean";;
            reassign:0) offer="plan execute watch verify cancel list kafka";;
            throttle:0) offer="show set sweep";;
            cluster:0) offer="describe health quorum features upgrade-features";;
            metrics:0) offer="serve";;
            broker:0) offer="describe decommission demote list stop kill restart";;
            mirror:0) offer="run plan verify status translate switch watch";;
            link:0) offer="create list describe failover resume";;
            profile:0) offer="add login use list show remove";;
            "apply:"0) offer="@files";;
            "top:"0) offer="topics groups brokers clients quotas mirrors";;
            "produce:"0) offer="@topics";;
            "consume:"*) offer="@topics";;
            "dump-log:"*) offer="@files";;
            "verify-log:"*) offer="@files";;
            "repair-log:"*) offer="@files";;
            "export:"*) offer="@files";;
            "import:"*) offer="@files";;
            "completion:"0) offer="bash zsh fish install";;
            "completion:"1) offer="bash zsh fish";;
            "help:"*) offer="@commands";;
            "topic purge:"*) offer="@topics";;
            "topic list:"*) offer="@topics";;
            "topic describe:"*) offer="@topics";;
            "topic alter:"0) offer="@topics";;
            "topic delete:"*) offer="@topics";;
            "config describe:"0) offer="topic broker logger";;
            "config describe:"1) offer="@config";;
            "config alter:"0) offer="topic broker logger";;
            "config alter:"1) offer="@config";;
            "group reset-offsets:"0) offer="@groups";;
            "group export-offsets:"*) offer="@groups";;
            "group import-offsets:"0) offer="@files";;
            "group clone-offsets:"0) offer="@groups";;
            "group delete-offsets:"0) offer="@groups";;
            "group describe:"*) offer="@groups";;
            "group lag:"*) offer="@groups";;
            "group migrate:"*) offer="@groups";;
            "group rebalance-check:"0) offer="@groups";;
            "group list:"*) offer="@groups";;
            "group delete:"*) offer="@groups";;
            "txn list:"*) offer="@ids";;
            "txn describe:"*) offer="@ids";;
            "txn abort:"*) offer="@ids";;
            "records delete:"*) offer="@topics";;
            "elect preferred:"*) offer="@topics";;
            "elect unclean:"*) offer="@topics";;
            "reassign execute:"0) offer="@files";;
            "reassign verify:"0) offer="@files";;
            "reassign cancel:"0) offer="@files";;
            "broker describe:"*) offer="@brokers";;
            "broker decommission:"0) offer="@brokers";;
            "broker demote:"*) offer="@brokers";;
            "broker stop:"*) offer="@brokers";;
            "broker kill:"*) offer="@brokers";;
            "broker restart:"*) offer="@brokers";;
            "mirror translate:"0) offer="@groups";;
            "mirror switch:"*) offer="@groups";;
            "link describe:"*) offer="@topics";;
            "link failover:"*) offer="@topics";;
            "link resume:"*) offer="@topics";;
            "profile login:"0) offer="@profiles";;
            "profile use:"0) offer="@profiles";;
            "profile show:"0) offer="@profiles";;
            "profile remove:"0) offer="@profiles";;
        esac
    fi
    case "$offer" in
        @files) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return;;
        @config) offer="$("${words[0]}" __complete "config-$last" "$cur" "${connect[@]}" 2>/dev/null)";;
        @*) offer="$("${words[0]}" __complete "${offer#@}" "$cur" "${connect[@]}" 2>/dev/null)";;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$offer" -- "$cur")
}
complete -F _kctl kctl
