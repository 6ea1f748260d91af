//! The content of blobs, from `git cat-file --batch` processes that are reused.

use std::fmt::Write as _;
use std::io::{self, BufRead as _, BufReader, PipeReader, PipeWriter, Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use gossip_contracts::connector::{ConnectorError, ItemBody, MAX_INLINE_BODY_BYTES, OpenError};

use super::process::{Git, GitProcess};
use super::table::hex;

/// The longest answer before a body: an id, a kind and a size.
const HEADER_LEN_MAX: u64 = 256;
/// A body that was not read to its end is skipped up to this length; for a longer rest a new
/// process is cheaper.
const SKIPPED_MAX: u64 = 1 << 20;

/// The processes that are not in use. There are at most as many as items were open at a time.
pub(super) struct Readers {
    git_dir: PathBuf,
    idle: Mutex<Vec<BatchProcess>>,
}

impl Readers {
    pub(super) fn new(git_dir: &Path) -> Self {
        Self { git_dir: git_dir.to_owned(), idle: Mutex::new(Vec::new()) }
    }

    /// Opens a blob; a small one is read into `scratch`.
    pub(super) fn body<'a>(
        &'a self,
        oid: &[u8],
        scratch: &'a mut Vec<u8>,
    ) -> Result<ItemBody<'a>, OpenError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut process = match idle {
            Some(process) => process,
            None => BatchProcess::start(&self.git_dir).map_err(|error| unavailable(&error))?,
        };
        let Some(size) = process.request(oid).map_err(|error| unavailable(&error))? else {
            self.keep(process);
            return Err(OpenError::Malformed);
        };
        let mut body = Body { process: Some(process), left: size, readers: self };
        if size > MAX_INLINE_BODY_BYTES as u64 {
            return Ok(ItemBody::Reader(Box::new(body)));
        }
        scratch.clear();
        body.read_to_end(scratch).map_err(|error| unavailable(&error))?;
        Ok(ItemBody::Bytes(scratch))
    }

    fn keep(&self, process: BatchProcess) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(process);
    }
}

/// A process that ended or answers something else says nothing about the item.
fn unavailable(error: &io::Error) -> OpenError {
    OpenError::Source(ConnectorError::Unavailable { kind: error.kind() })
}

struct BatchProcess {
    input: PipeWriter,
    output: BufReader<PipeReader>,
    /// Killed at the end: it holds nothing that could be lost.
    _process: GitProcess,
}

impl BatchProcess {
    fn start(git_dir: &Path) -> io::Result<Self> {
        let mut command = Git::on(git_dir);
        command.args(&["cat-file", "--batch"]);
        let (process, input, output) = command.start_asking()?;
        let output = BufReader::with_capacity(64 << 10, output);
        Ok(Self { input, output, _process: process })
    }

    /// Asks for an object and returns its size; `None` if git does not have it.
    fn request(&mut self, oid: &[u8]) -> io::Result<Option<u64>> {
        let mut line = hex(oid);
        // Writing to a string cannot fail.
        let _ = writeln!(line);
        self.input.write_all(line.as_bytes())?;
        self.input.flush()?;
        let mut header = Vec::new();
        self.output.by_ref().take(HEADER_LEN_MAX).read_until(b'\n', &mut header)?;
        let text = header.strip_suffix(b"\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut fields = text.split(|byte| *byte == b' ').skip(1);
        if fields.next() == Some(b"missing") {
            return Ok(None);
        }
        let size = fields.next().and_then(|size| std::str::from_utf8(size).ok());
        let size = size.and_then(|size| size.parse().ok());
        size.map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// The rest of one body. Returns its process for reuse when it is dropped.
struct Body<'a> {
    process: Option<BatchProcess>,
    left: u64,
    readers: &'a Readers,
}

impl Read for Body<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(process) = &mut self.process else { return Ok(0) };
        let read = process.output.by_ref().take(self.left).read(buffer)?;
        // Fewer bytes than announced: the process was killed, and the content is not complete.
        if read == 0 && self.left > 0 && !buffer.is_empty() {
            self.process = None;
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        self.left -= read as u64;
        Ok(read)
    }
}

impl Drop for Body<'_> {
    fn drop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        if self.left > SKIPPED_MAX {
            return;
        }
        // The line feed behind the body belongs to the answer.
        let rest = self.left + 1;
        let skipped = io::copy(&mut process.output.by_ref().take(rest), &mut io::sink());
        if skipped.is_ok_and(|skipped| skipped == rest) {
            self.readers.keep(process);
        }
    }
}
