# Completion of kctl for bash; made by `kctl completion bash`.
_kctl() {
    local line="${COMP_LINE:0:COMP_POINT}" cur="" path="" word="" option="" skip="" count=0
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
            --acks|--append|--backup|--batch|--bootstrap-server|--broker-list|--brokers|--by|--by-duration|--codec|--columns|--command-config|--compare|--compression|--conf|--config|--coordinator-epoch|--cut|--data-dir|--delete-config|--every|--extract|--file|--file-size|--files|--format|--from-file|--group|--header|--input|--interval|--into|--isolation|--jobs|--key|--key-as|--key-message|--key-pattern|--key-schema|--key-separator|--leader-epoch|--limit|--listener|--master|--max-message-size|--max-messages|--max-moves|--message|--null|--offset|--on-damage|--order-by|--out|--output|--partition|--partition-by|--partitions|--port|--producer-id|--profile|--property|--racks|--ready-file|--reassignment-json-file|--rebuild|--registry|--replica-alter-log-dirs-throttle|--replica-assignment|--replication-factor|--schema|--seed-topic|--segment-size|--set|--settle|--shift-by|--skip|--state|--stop|--subject|--subtract|--tail|--throttle|--timeout|--timestamp|--to-datetime|--to-offset|--topic|--topics-to-move-json-file|--transactional-id|--truncate-to|--value|--value-as|--zookeeper|--zookeeper-port|-C|-D|-H|-O|-S|-X|-b|-c|-d|-f|-g|-i|-j|-k|-l|-m|-o|-p|-r|-t|-z) skip="$word";;
            -*) ;;
            *) case "$path" in ""|topic|config|group|txn|elect|reassign|throttle|cluster|broker) path="${path:+$path }$word";;
                *) (( count++ ));; esac;;
        esac
    done
    option="$skip"
    local offer=""
    if [[ -n "$option" ]]; then
        case "$path:$option" in
            "serve:--data-dir"|"serve:-D"|"serve:--config"|"serve:--ready-file"|"produce:--file"|"produce:-f"|"produce:--command-config"|"consume:--command-config"|"dump-log:--schema"|"dump-log:--key-schema"|"verify-log:--compare"|"verify-log:--command-config"|"repair-log:--backup"|"repair-log:--extract"|"export:--out"|"export:--schema"|"export:--command-config"|"import:--into"|"import:--command-config"|"topic create:--command-config"|"topic list:--command-config"|"topic describe:--command-config"|"topic alter:--command-config"|"topic delete:--command-config"|"config describe:--command-config"|"config alter:--command-config"|"group reset-offsets:--from-file"|"group reset-offsets:--command-config"|"group export-offsets:--command-config"|"group import-offsets:--command-config"|"group clone-offsets:--command-config"|"group delete-offsets:--command-config"|"group describe:--command-config"|"group list:--command-config"|"group delete:--command-config"|"txn list:--command-config"|"txn describe:--command-config"|"txn hanging:--command-config"|"txn abort:--command-config"|"elect preferred:--command-config"|"elect unclean:--command-config"|"reassign plan:--out"|"reassign plan:--command-config"|"reassign execute:--command-config"|"reassign watch:--command-config"|"reassign verify:--command-config"|"reassign cancel:--command-config"|"reassign list:--command-config"|"reassign kafka:--reassignment-json-file"|"reassign kafka:--topics-to-move-json-file"|"reassign kafka:--command-config"|"throttle show:--command-config"|"throttle set:--command-config"|"throttle sweep:--command-config"|"cluster describe:--command-config"|"cluster health:--command-config"|"broker describe:--command-config"|"broker decommission:--stop"|"broker decommission:--command-config"|"broker list:--data-dir"|"broker list:-D"|"broker stop:--data-dir"|"broker stop:-D"|"broker kill:--data-dir"|"broker kill:-D"|"broker restart:--data-dir"|"broker restart:-D") offer="@files";;
            "produce:--input"|"produce:-i") offer="lines ndjson whole";;
            "produce:--acks") offer="all 1 0";;
            "produce:--compression"|"produce:-z"|"import:--compression"|"import:-z") offer="none gzip snappy lz4 zstd";;
            "produce:--profile"|"produce:-C"|"consume:--profile"|"consume:-C"|"verify-log:--profile"|"verify-log:-C"|"export:--profile"|"export:-C"|"import:--profile"|"import:-C"|"topic create:--profile"|"topic create:-C"|"topic list:--profile"|"topic list:-C"|"topic describe:--profile"|"topic describe:-C"|"topic alter:--profile"|"topic alter:-C"|"topic delete:--profile"|"topic delete:-C"|"config describe:--profile"|"config describe:-C"|"config alter:--profile"|"config alter:-C"|"group reset-offsets:--profile"|"group reset-offsets:-C"|"group export-offsets:--profile"|"group export-offsets:-C"|"group import-offsets:--profile"|"group import-offsets:-C"|"group clone-offsets:--profile"|"group clone-offsets:-C"|"group delete-offsets:--profile"|"group delete-offsets:-C"|"group describe:--profile"|"group describe:-C"|"group list:--profile"|"group list:-C"|"group delete:--profile"|"group delete:-C"|"txn list:--profile"|"txn list:-C"|"txn describe:--profile"|"txn describe:-C"|"txn hanging:--profile"|"txn hanging:-C"|"txn abort:--profile"|"txn abort:-C"|"elect preferred:--profile"|"elect preferred:-C"|"elect unclean:--profile"|"elect unclean:-C"|"reassign plan:--profile"|"reassign plan:-C"|"reassign execute:--profile"|"reassign execute:-C"|"reassign watch:--profile"|"reassign watch:-C"|"reassign verify:--profile"|"reassign verify:-C"|"reassign cancel:--profile"|"reassign cancel:-C"|"reassign list:--profile"|"reassign list:-C"|"reassign kafka:--profile"|"reassign kafka:-C"|"throttle show:--profile"|"throttle show:-C"|"throttle set:--profile"|"throttle set:-C"|"throttle sweep:--profile"|"throttle sweep:-C"|"cluster describe:--profile"|"cluster describe:-C"|"cluster health:--profile"|"cluster health:-C"|"broker describe:--profile"|"broker describe:-C"|"broker decommission:--profile"|"broker decommission:-C") offer="@profiles";;
            "produce:--output"|"produce:-o"|"consume:--output"|"consume:-o"|"verify-log:--output"|"verify-log:-o"|"repair-log:--output"|"repair-log:-o"|"export:--output"|"export:-o"|"import:--output"|"import:-o"|"topic create:--output"|"topic create:-o"|"topic list:--output"|"topic list:-o"|"topic describe:--output"|"topic describe:-o"|"topic alter:--output"|"topic alter:-o"|"topic delete:--output"|"topic delete:-o"|"config describe:--output"|"config describe:-o"|"config alter:--output"|"config alter:-o"|"group reset-offsets:--output"|"group reset-offsets:-o"|"group import-offsets:--output"|"group import-offsets:-o"|"group clone-offsets:--output"|"group clone-offsets:-o"|"group delete-offsets:--output"|"group delete-offsets:-o"|"group describe:--output"|"group describe:-o"|"group list:--output"|"group list:-o"|"group delete:--output"|"group delete:-o"|"txn list:--output"|"txn list:-o"|"txn describe:--output"|"txn describe:-o"|"txn hanging:--output"|"txn hanging:-o"|"txn abort:--output"|"txn abort:-o"|"elect preferred:--output"|"elect preferred:-o"|"elect unclean:--output"|"elect unclean:-o"|"reassign plan:--output"|"reassign plan:-o"|"reassign execute:--output"|"reassign execute:-o"|"reassign watch:--output"|"reassign watch:-o"|"reassign verify:--output"|"reassign verify:-o"|"reassign cancel:--output"|"reassign cancel:-o"|"reassign list:--output"|"reassign list:-o"|"reassign kafka:--output"|"reassign kafka:-o"|"throttle show:--output"|"throttle show:-o"|"throttle set:--output"|"throttle set:-o"|"throttle sweep:--output"|"throttle sweep:-o"|"cluster describe:--output"|"cluster describe:-o"|"cluster health:--output"|"cluster health:-o"|"broker describe:--output"|"broker describe:-o"|"broker decommission:--output"|"broker decommission:-o"|"broker list:--output"|"broker list:-o"|"broker stop:--output"|"broker stop:-o"|"broker kill:--output"|"broker kill:-o"|"broker restart:--output"|"broker restart:-o") offer="table json ndjson yaml csv name";;
            "consume:--group"|"consume:-g"|"dump-log:--group"|"dump-log:-g"|"group import-offsets:--group"|"group import-offsets:-g") offer="@groups";;
            "consume:--isolation"|"export:--isolation") offer="read_uncommitted read_committed";;
            "dump-log:--format"|"dump-log:-o") offer="text json ndjson kafka";;
            "dump-log:--key-as"|"dump-log:--value-as") offer="string json int hex avro protobuf";;
            "export:--format"|"export:-f") offer="parquet orc csv ndjson delta iceberg";;
            "export:--value") offer="raw string json avro protobuf";;
            "export:--key") offer="raw string";;
            "export:--on-damage") offer="skip fail";;
            "import:--order-by") offer="timestamp offset";;
            "import:--format"|"import:-f") offer="parquet orc csv ndjson";;
            "group reset-offsets:--topic"|"group reset-offsets:-t"|"group export-offsets:--topic"|"group export-offsets:-t"|"group clone-offsets:--topic"|"group clone-offsets:-t"|"group delete-offsets:--topic"|"group delete-offsets:-t"|"txn hanging:--topic"|"txn abort:--topic"|"reassign plan:--topic"|"reassign plan:-t") offer="@topics";;
            "reassign plan:--by") offer="size count leaders";;
        esac
    elif [[ "$cur" == -* ]]; then
        case "$path" in
            "serve") offer="--brokers --config --data-dir --durable --help --listener --port --racks --ready-file --seed-topic --set --zookeeper --zookeeper-port";;
            "produce") offer="--acks --bootstrap-server --command-config --compression --dry-run --file --header --help --input --key --key-separator --null --output --partition --profile --property --timeout --timestamp --transactional-id";;
            "consume") offer="--bootstrap-server --command-config --exit --format --from-beginning --group --help --isolation --max-messages --offset --output --partition --profile --property --read-committed --show-key --timeout";;
            "dump-log") offer="--conf --deep-iteration --files --follow --format --group --header --help --hex --index-sanity-check --key --key-as --key-message --key-pattern --key-schema --leader-epoch --limit --master --max-message-size --message --offset --offsets-decoder --only-aborted --only-control --print-data-log --producer-id --raw --schema --spark --stats --tail --transaction-log-decoder --transactional-id --value-as --verify-index-only --where";;
            "verify-log") offer="--bootstrap-server --command-config --compare --conf --explain --help --jobs --master --output --profile --property --quick --replicas --spark --timeout";;
            "repair-log") offer="--apply --backup --codec --cut --drop-recovery-point --extract --help --key --key-pattern --offset --output --rebuild --truncate-to";;
            "export") offer="--bootstrap-server --columns --command-config --conf --file-size --format --help --isolation --jobs --key --latest-per-key --master --message --offset --on-damage --out --output --partition --partition-by --profile --property --registry --schema --spark --subject --timeout --topic --value";;
            "import") offer="--bootstrap-server --command-config --compression --conf --dry-run --format --help --into --jobs --master --order-by --output --partitions --profile --property --repartition --segment-size --skip --spark --timeout --topic --yes";;
            "completion") offer="--help";;
            "topic create") offer="--bootstrap-server --command-config --config --dry-run --help --if-not-exists --output --partitions --profile --property --replica-assignment --replication-factor --timeout";;
            "topic list") offer="--bootstrap-server --command-config --help --internal --output --profile --property --timeout";;
            "topic describe") offer="--bootstrap-server --command-config --help --internal --offsets --output --profile --property --timeout --unavailable --under-replicated";;
            "topic alter") offer="--bootstrap-server --command-config --config --delete-config --dry-run --help --output --partitions --profile --property --timeout --yes";;
            "topic delete") offer="--bootstrap-server --command-config --dry-run --help --if-exists --output --profile --property --timeout --yes";;
            "config describe") offer="--all --bootstrap-server --command-config --help --output --profile --property --timeout";;
            "config alter") offer="--append --bootstrap-server --command-config --config --delete-config --dry-run --help --output --profile --property --subtract --timeout --yes";;
            "group reset-offsets") offer="--all-topics --bootstrap-server --by-duration --command-config --dry-run --from-file --help --output --profile --property --shift-by --timeout --to-current --to-datetime --to-earliest --to-latest --to-offset --topic --yes";;
            "group export-offsets") offer="--bootstrap-server --command-config --help --profile --property --timeout --topic";;
            "group import-offsets") offer="--bootstrap-server --command-config --dry-run --group --help --output --profile --property --timeout --yes";;
            "group clone-offsets") offer="--bootstrap-server --command-config --dry-run --help --output --profile --property --timeout --topic --yes";;
            "group delete-offsets") offer="--all-topics --bootstrap-server --command-config --dry-run --help --output --profile --property --timeout --topic --yes";;
            "group describe") offer="--bootstrap-server --by-topic --command-config --every --help --members --output --profile --property --timeout --watch";;
            "group list") offer="--bootstrap-server --command-config --help --output --profile --property --state --timeout";;
            "group delete") offer="--bootstrap-server --command-config --dry-run --help --output --profile --property --timeout --yes";;
            "txn list") offer="--bootstrap-server --command-config --help --output --profile --property --state --timeout";;
            "txn describe") offer="--bootstrap-server --command-config --help --output --profile --property --timeout";;
            "txn hanging") offer="--bootstrap-server --command-config --help --output --profile --property --timeout --topic";;
            "txn abort") offer="--bootstrap-server --command-config --coordinator-epoch --dry-run --help --output --partition --producer-id --profile --property --timeout --topic --yes";;
            "elect preferred") offer="--all --bootstrap-server --command-config --dry-run --help --output --profile --property --timeout";;
            "elect unclean") offer="--all --bootstrap-server --command-config --dry-run --help --output --profile --property --timeout --yes";;
            "reassign plan") offer="--bootstrap-server --brokers --by --command-config --help --max-moves --out --output --profile --property --throttle --timeout --topic --zookeeper";;
            "reassign execute") offer="--additional --batch --bootstrap-server --command-config --dry-run --help --output --profile --property --throttle --timeout --wait --yes --zookeeper";;
            "reassign watch") offer="--bootstrap-server --command-config --help --interval --once --output --profile --property --timeout";;
            "reassign verify") offer="--bootstrap-server --command-config --help --output --preserve-throttles --profile --property --timeout --zookeeper";;
            "reassign cancel") offer="--all --bootstrap-server --command-config --dry-run --help --output --profile --property --timeout --yes";;
            "reassign list") offer="--bootstrap-server --command-config --help --output --profile --property --timeout --zookeeper";;
            "reassign kafka") offer="--additional --bootstrap-server --broker-list --cancel --command-config --disable-rack-aware --execute --generate --help --list --output --preserve-throttles --profile --property --reassignment-json-file --replica-alter-log-dirs-throttle --throttle --timeout --topics-to-move-json-file --verify --zookeeper";;
            "throttle show") offer="--bootstrap-server --command-config --help --output --profile --property --timeout --zookeeper";;
            "throttle set") offer="--bootstrap-server --command-config --dry-run --help --output --profile --property --timeout --zookeeper";;
            "throttle sweep") offer="--all --bootstrap-server --command-config --dry-run --force --help --output --profile --property --timeout --yes --zookeeper";;
            "cluster describe") offer="--bootstrap-server --command-config --help --output --profile --property --timeout";;
            "cluster health") offer="--bootstrap-server --command-config --help --nagios --output --profile --property --settle --timeout";;
            "broker describe") offer="--bootstrap-server --command-config --help --output --profile --property --timeout";;
            "broker decommission") offer="--batch --bootstrap-server --command-config --dry-run --help --output --profile --property --stop --throttle --timeout --yes";;
            "broker list") offer="--data-dir --help --output";;
            "broker stop") offer="--data-dir --help --output";;
            "broker kill") offer="--data-dir --help --output";;
            "broker restart") offer="--data-dir --help --output";;
            *) offer="--help --version";;
        esac
    else
        case "$path:$count" in
            ":0") offer="serve topic config group txn produce consume elect reassign throttle cluster broker dump-log verify-log repair-log export import completion";;
            topic:0) offer="create list describe alter delete";;
            config:0) offer="describe alter";;
            group:0) offer="reset-offsets export-offsets import-offsets clone-offsets delete-offsets describe list delete";;
            txn:0) offer="list describe hanging abort";;
            elect:0) offer="preferred unclean";;
            reassign:0) offer="plan execute watch verify cancel list kafka";;
            throttle:0) offer="show set sweep";;
            cluster:0) offer="describe health";;
            broker:0) offer="describe decommission list stop kill restart";;
            "produce:"0) offer="@topics";;
            "consume:"*) offer="@topics";;
            "completion:"0) offer="bash zsh fish";;
            "topic list:"*) offer="@topics";;
            "topic describe:"*) offer="@topics";;
            "topic alter:"0) offer="@topics";;
            "topic delete:"*) offer="@topics";;
            "config describe:"0) offer="topic broker logger";;
            "config describe:"1) offer="@topics";;
            "config alter:"0) offer="topic broker logger";;
            "config alter:"1) offer="@topics";;
            "group reset-offsets:"0) offer="@groups";;
            "group export-offsets:"*) offer="@groups";;
            "group import-offsets:"0) offer="@files";;
            "group delete-offsets:"0) offer="@groups";;
            "group describe:"*) offer="@groups";;
            "group list:"*) offer="@groups";;
            "group delete:"*) offer="@groups";;
            "elect preferred:"*) offer="@topics";;
            "elect unclean:"*) offer="@topics";;
            "reassign execute:"0) offer="@files";;
            "reassign verify:"0) offer="@files";;
            "reassign cancel:"0) offer="@files";;
        esac
    fi
    case "$offer" in
        @files) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return;;
        @*) offer="$("${words[0]}" __complete "${offer#@}" "$cur" "${connect[@]}" 2>/dev/null)";;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$offer" -- "$cur")
}
complete -F _kctl kctl
