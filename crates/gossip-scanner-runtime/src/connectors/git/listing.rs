//! One walk over the history: every object, in the order of commits, with its kind and size.
//!
//! ```text
//!  git rev-list --objects --in-commit-order --reverse │ git cat-file --batch-check ──► table
//! ```
//!
//! The two are joined by a pipe, so nothing but the table is held here.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

use gossip_contracts::connector::ConnectorError;

use super::git;
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
    let mut walk = git(git_dir);
    walk.args(["rev-list", "--objects", "--in-commit-order", "--reverse", "--date-order"]);
    // Missing objects are listed as `?ID`, and found missing when they are opened.
    walk.args(["--missing=print", "--all", "--reflog"]);
    let mut walk = Ended(walk.stdout(Stdio::piped()).spawn().map_err(unavailable)?);
    let objects = walk.0.stdout.take().expect("standard output is a pipe");
    let mut describe = git(git_dir);
    describe.args(["cat-file", "--buffer"]);
    describe.arg("--batch-check=%(objectname) %(objecttype) %(objectsize) %(rest)");
    let described = describe.stdin(objects).stdout(Stdio::piped()).spawn();
    let mut describe = Ended(described.map_err(unavailable)?);
    let lines = describe.0.stdout.take().expect("standard output is a pipe");
    let (table, position) = read(lines).map_err(unavailable)?;
    let ended_well = |child: &mut Ended| child.0.wait().is_ok_and(|status| status.success());
    // Both are waited for, whatever the first says.
    let ended = [ended_well(&mut walk), ended_well(&mut describe)];
    match table {
        Some(table) if ended == [true, true] => Ok(table),
        Some(_) | None => Err(ConnectorError::Malformed { position }),
    }
}

/// Reads the listing. Returns `None` instead of a table if a line is none of git's, and how many
/// lines were read.
fn read(lines: ChildStdout) -> std::io::Result<(Option<Table>, u64)> {
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

/// A child that does not outlive its listing.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // Both fail for a child that was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
