"""A handler for `gossip exec SOURCE --stream -- python3 docs/handlers/count.py`.

It notes each item in the file "counted", with its fence, and answers when the line is written.
An item whose text is "bad" is refused for good.
"""

import json
import sys

with open("counted", "a", encoding="utf-8") as counted:
    for line in sys.stdin:
        item = json.loads(line)
        if item["type"] == "drain":
            break
        answer = {"type": "done", "id": item["id"]}
        if item.get("text") == "bad":
            answer = {"type": "error", "id": item["id"], "message": "bad", "retry": False}
        else:
            counted.write(f"{item['fence']} {item.get('text', item.get('text_hex'))}\n")
            counted.flush()
        print(json.dumps(answer), flush=True)
