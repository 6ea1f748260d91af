//! Handlers of the stream jobs: as little work for each line as a program can do.

use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::thread;
use std::time::Duration;

use crate::Outcome;

/// Bytes of the buffers, as much as a pipe holds.
const BUFFER: usize = 64 * 1024;

/// Time of a usual key of the scheduling jobs, and how many times as long a slow one takes.
pub(super) const KEY_TIME: Duration = Duration::from_millis(5);
pub(super) const SLOW: u32 = 50;

/// Answers the lines of its input, as `kind` says.
pub(super) fn run(kind: &str) -> Outcome<String> {
    let (reply, first_slow): (Reply, Option<u64>) = match kind {
        "json" => (Reply::Json, None),
        "lines" => (Reply::Empty, None),
        "plain" => (Reply::None, None),
        "even" => (Reply::Json, Some(u64::MAX)),
        slow => {
            let first = slow.strip_prefix("slow-from-").ok_or("an unknown kind of handler")?;
            (Reply::Json, Some(first.parse()?))
        }
    };
    let mut input = BufReader::with_capacity(BUFFER, io::stdin().lock());
    let mut output = BufWriter::with_capacity(BUFFER, io::stdout().lock());
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let id = number_after(&line, b"\"id\":");
        if reply == Reply::Json && id.is_none() {
            // The request to finish.
            break;
        }
        if let Some(first_slow) = first_slow {
            let key = number_after(&line, b"\"key\":\"").unwrap_or(0);
            thread::sleep(if key < first_slow { KEY_TIME } else { KEY_TIME * SLOW });
        }
        match (reply, id) {
            (Reply::Json, Some(id)) => writeln!(output, "{{\"type\":\"done\",\"id\":{id}}}")?,
            (Reply::Empty, _) => output.write_all(b"\n")?,
            (Reply::Json, None) | (Reply::None, _) => {}
        }
        // With the last line that came at once: the sender waits for the answers.
        if input.buffer().is_empty() {
            output.flush()?;
        }
    }
    output.flush()?;
    Ok(String::new())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Json,
    Empty,
    None,
}

fn number_after(line: &[u8], name: &[u8]) -> Option<u64> {
    let at = line.windows(name.len()).position(|window| window == name)?;
    let digits = line[at + name.len()..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}
