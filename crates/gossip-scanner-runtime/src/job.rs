//! The description of a run, stored with the range of each of its shards.
//!
//! A worker that joins a run from another process or machine reads there which source to list and
//! which command to run. The bytes are the connector's part of the metadata
//! ([`ShardMetadata`]), after the hint. Shards that a split creates inherit them.
//!
//! ```text
//!  version (1) · flags (1) · [len (8) · modified (8) of the source's file]
//!  source: length (4) · bytes;  command: number of words (4), each: length (4) · bytes
//! ```
//!
//! A job that its creator signed ([`JobKey`]) is one byte 2 and the MAC (32) in front of these.
//!
//! Numbers are little-endian. A decoder takes nothing else: no other version, no unknown flag, no
//! byte after the end; it never allocates by a length whose bytes it has not seen.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use gossip_contracts::coordination::MAX_METADATA_SIZE;
use gossip_contracts::identity::{RunId, TenantId};
use gossip_frontier::{MetadataBuf, ShardHint, ShardMetadata};
use thiserror::Error;

use crate::connectors::{SourceOptions, SourceStamp};
use crate::job_key::{JobKey, JobMac};

const VERSION: u8 = 1;

/// The first byte of a job with a MAC.
const SIGNED: u8 = 2;

// One bit for each option.
const IGNORE: u8 = 1;
const FOLLOW_LINKS: u8 = 2;
const NO_HEADER: u8 = 4;
const STREAM: u8 = 8;
const STAMPED: u8 = 16;
/// Only with [`STREAM`].
const LINES: u8 = 32;
/// Maximum size of a job, with its MAC if it is signed: metadata without the longest envelope of a
/// built-in source, whose hint states rows (29 bytes).
pub const MAX_JOB_SIZE: usize = MAX_METADATA_SIZE - 29;

const ALL_FLAGS: u8 = IGNORE | FOLLOW_LINKS | NO_HEADER | STREAM | STAMPED | LINES;

/// The source, and the command for each key.
#[derive(Clone, PartialEq, Eq)]
pub struct Job {
    /// The source, as it can be typed.
    pub source: OsString,
    /// Its options.
    pub options: SourceOptions,
    /// The state of its file when the run was created, if it is a file.
    pub stamp: Option<SourceStamp>,
    /// The command and its arguments; empty for runs of programs that bring their own processor.
    pub command: Vec<OsString>,
    /// How the command receives items, if it is kept running.
    pub stream: Option<StreamFormat>,
}

/// How a command that is kept running receives items and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "each is a protocol of its own")]
pub enum StreamFormat {
    /// One JSON object a line, in any order.
    Json,
    /// The text of an item a line, and one line back for each, in their order.
    Lines,
}

impl Job {
    /// Returns the bytes to store.
    ///
    /// # Errors
    ///
    /// Returns [`JobError::TooLong`] if it does not fit.
    pub fn encode(&self) -> Result<Vec<u8>, JobError> {
        let mut bytes = vec![VERSION, self.flags()];
        if let Some(stamp) = self.stamp {
            bytes.extend_from_slice(&stamp.len.to_le_bytes());
            bytes.extend_from_slice(&stamp.modified.to_le_bytes());
        }
        put(&mut bytes, self.source.as_bytes());
        let words = u32::try_from(self.command.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&words.to_le_bytes());
        for word in &self.command {
            put(&mut bytes, word.as_bytes());
        }
        let (size, max) = (bytes.len(), MAX_JOB_SIZE);
        if size > max { Err(JobError::TooLong { size, max }) } else { Ok(bytes) }
    }

    /// Returns the metadata of a shard with this job, signed if there is a signer.
    ///
    /// # Errors
    ///
    /// Returns [`JobError::TooLong`] if hint and job do not fit together.
    pub(crate) fn metadata(
        &self,
        hint: ShardHint<'_>,
        signer: Option<Signer<'_>>,
    ) -> Result<Vec<u8>, JobError> {
        let mut job = self.encode()?;
        if let Some(Signer { key, tenant, run }) = signer {
            // Tenant and run are signed too: otherwise a signed command could be copied into
            // another run (ADR 160).
            let mac = key.sign(tenant, run, &job);
            job = [&[SIGNED], mac.as_bytes().as_slice(), &job].concat();
        }
        let (size, max) = (job.len(), MAX_JOB_SIZE);
        if size > max {
            return Err(JobError::TooLong { size, max });
        }
        let mut buf = MetadataBuf::new();
        let encoded = ShardMetadata::new(hint, &job).encode_into(&mut buf).map(<[u8]>::to_vec);
        // A hint that cannot be encoded leaves no space for a job.
        encoded.map_err(|_| JobError::TooLong { size: job.len(), max: 0 })
    }

    /// Decodes the job in the metadata of a shard, signed or not.
    ///
    /// # Errors
    ///
    /// Returns [`JobError::Unreadable`] if it is not the metadata of a job.
    pub fn of_shard(metadata: &[u8]) -> Result<Self, JobError> {
        StoredJob::of_shard(metadata).map(|stored| stored.job)
    }

    /// Decodes the output of [`Self::encode`], and nothing else.
    ///
    /// # Errors
    ///
    /// Returns [`JobError::Unreadable`] for all other bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, JobError> {
        let unreadable = JobError::Unreadable { size: bytes.len() };
        // A job that could not be written was written by something else.
        let fits = bytes.len() <= MAX_JOB_SIZE;
        Reader { rest: bytes }.job().filter(|_| fits).ok_or(unreadable)
    }

    /// Returns the settings that distinguish jobs, except the source and the state of its file.
    #[must_use]
    pub fn settings(&self) -> Vec<u8> {
        let mut bytes = vec![match self.stream {
            None => 0,
            Some(StreamFormat::Json) => 1,
            Some(StreamFormat::Lines) => 2,
        }];
        for word in &self.command {
            put(&mut bytes, word.as_bytes());
        }
        bytes
    }

    fn flags(&self) -> u8 {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        flag(self.options.ignore, IGNORE)
            | flag(self.options.follow_links, FOLLOW_LINKS)
            | flag(self.options.no_header, NO_HEADER)
            | flag(self.stream.is_some(), STREAM)
            | flag(self.stream == Some(StreamFormat::Lines), LINES)
            | flag(self.stamp.is_some(), STAMPED)
    }
}

/// What a signature binds a job to, and the key for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signer<'a> {
    pub(crate) key: &'a JobKey,
    pub(crate) tenant: TenantId,
    pub(crate) run: RunId,
}

/// A job as it was found beside a shard, with its MAC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredJob {
    job: Job,
    /// The MAC that was found, which may be wrong.
    mac: Option<JobMac>,
}

impl StoredJob {
    pub(crate) fn of_shard(metadata: &[u8]) -> Result<Self, JobError> {
        let unreadable = JobError::Unreadable { size: metadata.len() };
        let envelope = ShardMetadata::decode(metadata).map_err(|_| unreadable)?;
        let bytes = envelope.connector_extra;
        let Some(signed) = bytes.strip_prefix(&[SIGNED]) else {
            return Ok(Self { job: Job::decode(bytes)?, mac: None });
        };
        let (mac, job) = signed.split_first_chunk().ok_or(unreadable)?;
        Ok(Self { job: Job::decode(job)?, mac: Some(JobMac::from_bytes(*mac)) })
    }

    /// Returns the job.
    #[must_use]
    pub const fn job(&self) -> &Job {
        &self.job
    }

    /// Returns the job without its MAC.
    #[must_use]
    pub(crate) fn into_job(self) -> Job {
        self.job
    }

    /// Returns whether a holder of `key` has signed this job for this run of this tenant.
    #[must_use]
    pub fn is_signed(&self, key: &JobKey, tenant: TenantId, run: RunId) -> bool {
        // A job that was decoded is encoded to the same bytes.
        let signed = self.job.encode().map(|bytes| key.sign(tenant, run, &bytes));
        self.mac.is_some() && self.mac == signed.ok()
    }
}

// Numbers only: a command may hold a password.
impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("source_len", &self.source.len())
            .field("options", &self.options)
            .field("command_words", &self.command.len())
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

/// A job that cannot be stored, or bytes that cannot be decoded.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobError {
    /// It does not fit into the metadata of a shard.
    #[error("source and command take {size} bytes; at most {max} fit; put the command into a file")]
    TooLong {
        /// Its size.
        size: usize,
        /// The maximum size.
        max: usize,
    },
    /// Not written by this version of the runtime.
    #[error("the {size} bytes beside a shard do not describe a job that this version knows")]
    Unreadable {
        /// How many there are.
        size: usize,
    },
}

fn put(bytes: &mut Vec<u8>, word: &[u8]) {
    // Longer words fail the check of the whole, which is far smaller than four gibibytes.
    let len = u32::try_from(word.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(word);
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn job(mut self) -> Option<Job> {
        if self.byte()? != VERSION {
            return None;
        }
        let flags = self.byte()?;
        if flags & !ALL_FLAGS != 0 {
            return None;
        }
        let stamp = match flags & STAMPED != 0 {
            true => Some(SourceStamp { len: self.number()?, modified: self.number()? }),
            false => None,
        };
        let source = self.word()?;
        let words = u32::from_le_bytes(self.chunk()?);
        // Without a reserved capacity: the count is read from the store, and its words may not
        // follow.
        let mut command = Vec::new();
        for _ in 0..words {
            command.push(self.word()?);
        }
        let options = SourceOptions {
            ignore: flags & IGNORE != 0,
            follow_links: flags & FOLLOW_LINKS != 0,
            no_header: flags & NO_HEADER != 0,
        };
        let stream = match (flags & STREAM != 0, flags & LINES != 0) {
            (true, false) => Some(StreamFormat::Json),
            (true, true) => Some(StreamFormat::Lines),
            (false, false) => None,
            // Refused, because it would be encoded without the flag, and a signature is checked
            // over the encoded job.
            (false, true) => return None,
        };
        let job = Job { source, options, stamp, command, stream };
        self.rest.is_empty().then_some(job)
    }

    fn byte(&mut self) -> Option<u8> {
        self.chunk::<1>().map(|[byte]| byte)
    }

    fn number(&mut self) -> Option<u64> {
        self.chunk().map(u64::from_le_bytes)
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (chunk, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*chunk)
    }

    fn word(&mut self) -> Option<OsString> {
        let len = usize::try_from(u32::from_le_bytes(self.chunk()?)).ok()?;
        let (word, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(OsString::from_vec(word.to_vec()))
    }
}
