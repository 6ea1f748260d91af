//! A process that is the store of handles elsewhere: a line in, a line out.
//!
//! A line is a file's number and a request for the store on it; the number alone closes the file.
//! The process ends when nobody tells it anything any more.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::Path;

use gossip_conformance::remote::{from_line, serve, to_line};
use gossip_coordination_sqlite::{OpenCheck, SqliteDatabase, SqliteOptions, SqliteStore};

use crate::Failure;

/// Serves what standard input asks, on files in `directory`.
pub(crate) fn run(directory: &Path) -> Result<String, Failure> {
    let (mut open, mut output) = (BTreeMap::new(), std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (file, request) = line.split_once(' ').unwrap_or((&line, ""));
        writeln!(output, "{}", answer(directory, &mut open, file, request)?)?;
        output.flush()?;
    }
    Ok("nobody asks any more".to_owned())
}

/// `open` holds the files that were asked for and not closed.
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
        // What processes add is the same whether or not a disk is waited for.
        let options = SqliteOptions { check: OpenCheck::Header, ..SqliteOptions::default() };
        let database =
            SqliteDatabase::open(directory.join(format!("{file}.db")), options.relaxed())?;
        open.insert(file.to_owned(), database.store());
    }
    let store = open.get_mut(file).ok_or("the file was opened above")?;
    let reply = from_line(request).and_then(|request| serve(store, &request));
    Ok(to_line(&reply.ok_or("a line that is no request")?))
}
