//! One walk over the history: every object, in the order of commits, with its kind and size.
//!
//! ```text
//!  git rev-list --objects --in-commit-order --reverse │ git cat-file --batch-check ──► table
//! ```
//!
//! The two are joined by a pipe, so nothing but the table is held here.

use std::io::{BufRead as _, BufReader, PipeReader, Read as _};
use std::os::fd::AsFd as _;
use std::path::Path;

use gossip_contracts::connector::ConnectorError;

use super::process::{Git, GitProcess};
use super::table::{Table, TableBuilder};

/// The longest line of the listing: an id, a kind, a size and a path. Systems limit a path to
/// 4 KiB; a longer one is a damaged tree.
const LINE_LEN_MAX: u64 = 64 << 10;

/// Lists the blobs of a repository.
pub(super) fn list(git_dir: &Path) -> Result<Table, ConnectorError> {
    let unavailable = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => ConnectorError::NotFound,
        kind => ConnectorError::Unavailable { kind },
    };
    let mut walk = Git::on(git_dir);
    walk.args(&["rev-list", "--objects", "--in-commit-order", "--reverse", "--date-order"]);
    // Missing objects are listed as `?ID`, and found missing when they are opened.
    walk.args(&["--missing=print", "--all", "--reflog"]);
    let (mut walk, objects) = walk.start().map_err(unavailable)?;
    let mut describe = Git::on(git_dir);
    describe.args(&["cat-file", "--buffer"]);
    describe.arg("--batch-check=%(objectname) %(objecttype) %(objectsize) %(rest)");
    let described = describe.start_reading(objects.as_fd());
    // Otherwise the walk would wait for a reader for ever if the other process dies.
    drop(objects);
    let (mut describe, lines) = described.map_err(unavailable)?;
    let (table, position) = read(lines).map_err(unavailable)?;
    let ended_well = |process: &mut GitProcess| process.wait().is_ok_and(|status| status.success());
    // Both are waited for, whatever the first says.
    let ended = [ended_well(&mut walk), ended_well(&mut describe)];
    match table {
        Some(table) if ended == [true, true] => Ok(table),
        Some(_) | None => Err(ConnectorError::Malformed { position }),
    }
}

/// Reads the listing. Returns `None` instead of a table if a line is none of git's, and how many
/// lines were read.
fn read(lines: PipeReader) -> std::io::Result<(Option<Table>, u64)> {
    let (mut lines, mut builder) = (BufReader::new(lines), TableBuilder::default());
    let (mut line, mut count) = (Vec::new(), 0);
    loop {
        line.clear();
        lines.by_ref().take(LINE_LEN_MAX).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok((Some(builder.finish()), count));
        }
        count += 1;
        let Some(text) = line.strip_suffix(b"\n") else { return Ok((None, count)) };
        if take(text, &mut builder).is_none() {
            return Ok((None, count));
        }
    }
}

fn take(line: &[u8], builder: &mut TableBuilder) -> Option<()> {
    let mut fields = line.splitn(4, |byte| *byte == b' ');
    let mut field = || std::str::from_utf8(fields.next()?).ok();
    let (oid, kind) = (field()?, field()?);
    match kind {
        "commit" => builder.begin_commit(oid),
        "blob" => {
            let size = field()?.parse().ok()?;
            builder.add(oid, size, fields.next().unwrap_or_default())?;
        }
        // Of any kind: an item that cannot be read, so that the run ends incomplete.
        "missing" => builder.add(oid.strip_prefix('?').unwrap_or(oid), 0, b"")?,
        // Trees and tags.
        _ => {}
    }
    Some(())
}
