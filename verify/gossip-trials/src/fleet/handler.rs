//! The handler of the fleet: some time for each key, then a write to the sink.

use std::fs::OpenOptions;
use std::io::{self, BufRead as _, Write as _};
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::Outcome;
use crate::fleet::sink::{Entry, Sink, Write};

/// Processing time of one key. It dominates, so that a signal usually interrupts a key.
const WORK: Duration = Duration::from_millis(20);

/// Returns the name of the file in which a handler records each key before processing it.
pub(crate) fn notes(worker: &str, pid: u32) -> String {
    format!("begun.{worker}.{pid}")
}

/// Answers JSON lines until the input ends; returns no figures.
pub(crate) fn run(directory: &Path, keys: u64, worker: &str) -> Outcome<String> {
    let mut sink = Sink::open(directory, keys)?;
    let notes = directory.join(notes(worker, std::process::id()));
    let mut begun = OpenOptions::new().create(true).append(true).open(notes)?;
    for line in io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?)?;
        if message["type"] == "drain" {
            break;
        }
        let (id, shard) = (&message["id"], message["shard"].as_str().ok_or("no shard")?);
        let key: u64 = message["text"].as_str().ok_or("no text")?.parse()?;
        let fence = message["fence"].as_u64().ok_or("no fence")?;
        begun.write_all(format!("{key} {fence}\n").as_bytes())?;
        thread::sleep(WORK);
        let answer = match sink.write(Entry { key, fence, shard, worker })? {
            Write::Accepted => serde_json::json!({"type": "done", "id": id}),
            Write::Refused => serde_json::json!({
                "type": "error", "id": id, "retry": false, "message": "the key was written under a higher fence",
            }),
        };
        // If the worker has ended, the input ends as well.
        let _ = writeln!(io::stdout(), "{answer}");
    }
    Ok(String::new())
}
