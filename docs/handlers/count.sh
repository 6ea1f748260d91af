#!/bin/sh
# A handler for `gossip exec SOURCE --stream -- sh docs/handlers/count.sh`.
# It notes each item in the file "counted" and answers when the line is written.
while read -r line; do
    case $line in *'"type":"drain"'*) exit 0 ;; esac
    id=${line#*\"id\":}
    id=${id%%[!0-9]*}
    printf '%s\n' "$line" >>counted
    printf '{"type":"done","id":%s}\n' "$id"
done
