trap : TERM
"$@" > "$0/log" 2>&1 < /dev/null & job=$!
while kill -0 $job 2> /dev/null; do true > "$0/alive"; [ ! -e "$0/stop" ] || kill -TERM 0; sleep 1; done
wait $job; echo $? > "$0/new" && mv "$0/new" "$0/code"
