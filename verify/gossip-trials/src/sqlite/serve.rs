//! Serves store requests of handles in another process: reads one line, writes one line.
//!
//! A line holds a file number and a request for the store in that file; the number alone closes the
//! file. The process ends at the end of its standard input.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::Path;

use gossip_conformance::remote::{from_line, serve, to_line};
use gossip_coordination_sqlite::{OpenCheck, SqliteDatabase, SqliteOptions, SqliteStore};

use crate::Failure;

/// Serves the requests on standard input, on files in `directory`.
pub(crate) fn run(directory: &Path) -> Result<String, Failure> {
    let (mut open, mut output) = (BTreeMap::new(), std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (file, request) = line.split_once(' ').unwrap_or((&line, ""));
        writeln!(output, "{}", answer(directory, &mut open, file, request)?)?;
        output.flush()?;
    }
    Ok("standard input ended".to_owned())
}

/// Answers one request. `open` holds the open files.
fn answer(
    directory: &Path,
    open: &mut BTreeMap<String, SqliteStore>,
    file: &str,
    request: &str,
) -> Result<String, Failure> {
    if request.is_empty() {
        open.remove(file);
        return Ok(String::new());
    }
    if !open.contains_key(file) {
        // Durability is not under test here, so fsync is relaxed.
        let options = SqliteOptions { check: OpenCheck::Header, ..SqliteOptions::default() };
        let database =
            SqliteDatabase::open(directory.join(format!("{file}.db")), options.relaxed())?;
        open.insert(file.to_owned(), database.store());
    }
    let store = open.get_mut(file).ok_or("the file was opened above")?;
    let reply = from_line(request).and_then(|request| serve(store, &request));
    Ok(to_line(&reply.ok_or("invalid request line")?))
}
