//! `cargo xtask fleet`: eight workers on one etcd, of which some die, one sleeps, and one leaves.
//!
//! `fleet trial KEYS DIRECTORY` starts an etcd server and eight `gossip worker` processes on one
//! run. Two are killed with all that they started, one is stopped beyond its lease and goes on
//! later, one is told to drain, and some shards are asked back from the others. Whatever their
//! handlers write goes through a [fenced sink](sink), and a [watcher](watch) notes until when
//! leases last. At the end the run's certificate is compared with its source, and the
//! [books](book) must show that no key was lost, that every key that was redone has a cause, that
//! nothing was taken from a live owner, and that the late writes of the sleeper were refused.
//!
//! `fleet handle DIRECTORY WORKER KEYS` is the handler: JSON lines, one item at a time.

mod book;
mod handler;
mod sink;
mod trial;
mod watch;
mod worker;

use std::error::Error;
use std::io::{self, Write as _};
use std::path::Path;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["trial", keys, directory] => {
            let figures = trial::run(keys.parse()?, Path::new(directory))?;
            writeln!(io::stdout(), "{figures}")?;
            Ok(())
        }
        ["handle", directory, keys, worker] => {
            handler::run(Path::new(directory), keys.parse()?, worker)
        }
        _ => Err("type: fleet trial KEYS DIRECTORY".into()),
    }
}
