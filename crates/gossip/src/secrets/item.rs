//! Searches one item and derives the ids of its findings.

use std::fs::File;
use std::io::{self, Read, Seek as _};
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::Ordering;

use gossip_contracts::connector::{Connector, ItemBody, OpenError, PageItem};
use gossip_contracts::coordination::MAX_KEY_SIZE;
use gossip_contracts::identity::{
    CanonicalHasher, ConnectorInstanceIdHash, ConnectorTag, Domain, FindingId, FindingIdInputs,
    ItemIdentityKey, ObjectVersionId, SecretHash, StableItemId, TenantId,
};
use gossip_scan::{Finding, Report, Scratch, UnreadReason};
use gossip_scanner_runtime::connectors::{KeyFormat, Source};
use gossip_scanner_runtime::{ITEM_RESULTS_MAX, Work};

use super::SecretScan;
use super::stored::{Gap, ItemFindings, StoredFinding};

/// How often a file that changes while it is read is read again.
const FILE_READS_MAX: usize = 3;

/// Maximum bytes of the stored text of one item: about a thousand findings. Further ones are a gap.
const ITEM_BYTES_MAX: usize = 400 << 10;

// The gap that reports further findings is added when the text is full.
const _: () = assert!(ITEM_BYTES_MAX + GAP_OVERHEAD <= ITEM_RESULTS_MAX);
// Gaps are stored before findings, and together with the key and the path they fit.
const _: () = assert!(GAP_BYTES_MAX + 2 * ESCAPED_MAX * MAX_KEY_SIZE <= ITEM_BYTES_MAX);

/// Maximum bytes of an escape in JSON for one byte.
const ESCAPED_MAX: usize = 6;

/// Maximum bytes of the name of an archive member in a finding: longer than paths, and short enough
/// that names of a hostile archive do not use up the space for findings.
const MEMBER_LEN_MAX: usize = 1 << 10;

/// Maximum number of gaps that are stored, and the bytes they take at most: a hostile archive has
/// thousands of damaged members.
const GAPS_MAX: usize = 50;
const GAP_BYTES_MAX: usize = (GAPS_MAX + 2) * (MEMBER_LEN_MAX * ESCAPED_MAX + GAP_OVERHEAD);

/// Bytes of a stored gap besides the name of its member.
const GAP_OVERHEAD: usize = 64;

/// Bytes read at a time to hash a content.
const HASH_CHUNK: usize = 64 << 10;

/// Searches the items of one source, on one thread.
pub struct ItemScanner<'a> {
    secrets: &'a SecretScan,
    tenant: TenantId,
    tag: ConnectorTag,
    instance: ConnectorInstanceIdHash,
    /// Whether keys are paths.
    has_paths: bool,
    key_format: KeyFormat,
    scratch: Scratch,
}

impl<'a> ItemScanner<'a> {
    /// Returns a scanner of the items of `source`.
    #[must_use]
    pub fn new(secrets: &'a SecretScan, tenant: TenantId, source: &Source) -> Self {
        // Paths below a root, and object ids, mean the same in every copy: findings keep their ids
        // when a repository is checked out elsewhere. A row is a row of one file.
        let (tag, instance) = match source {
            Source::Tree { .. } => (ConnectorTag::FS_LOCAL, Vec::new()),
            Source::Git { .. } => (ConnectorTag::GIT_LOCAL, Vec::new()),
            other => (ROWS, other.text().into_encoded_bytes()),
        };
        Self {
            secrets,
            tenant,
            tag,
            instance: ConnectorInstanceIdHash::from_instance_id(&instance),
            has_paths: matches!(source, Source::Tree { .. }),
            key_format: source.key_format(),
            scratch: secrets.scanner.scratch(),
        }
    }

    /// Searches one item; a small body is read into `buffer`. Returns findings and unread
    /// parts, if there are any of either.
    ///
    /// # Errors
    ///
    /// The item cannot be opened or read: nothing is known about it.
    pub(super) fn scan(
        &mut self,
        work: &Work<'_>,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<ItemFindings>, OpenError> {
        let origin = work.connector.origin(work.key());
        let path = match &origin {
            Some(origin) => origin.path,
            None if self.has_paths => work.key(),
            None => b"",
        };
        let read = match work.open(buffer)? {
            ItemBody::Bytes(bytes) => self.read_bytes(path, bytes),
            ItemBody::File(file) => self.read_file(path, &file),
            ItemBody::Reader(reader) => self.read_stream(path, reader),
        };
        let mut read = read.map_err(|error| OpenError::from_io(&error))?;
        if !read.findings.is_empty() && read.version.is_none() {
            // Rare: the content is read again only for items with findings.
            let hash = hash_content(work.open(buffer)?);
            read.version = Some(hash.map_err(|error| OpenError::from_io(&error))?);
        }
        let readable;
        let path = if self.has_paths || origin.is_some() {
            path
        } else {
            readable = self.key_format.readable(work.key());
            readable.as_bytes()
        };
        Ok(self.stored(work.key(), path, origin.map_or("", |it| it.revision), read))
    }

    /// Opens an item again and passes each of its findings that is still there to `sink`, with the
    /// secret. For a terminal of a user who asked for it, and nothing else.
    ///
    /// # Errors
    ///
    /// The item cannot be opened or read.
    pub fn secrets_of(
        &mut self,
        connector: &dyn Connector,
        item: &ItemFindings,
        mut sink: impl FnMut(&StoredFinding, &[u8]),
    ) -> Result<(), OpenError> {
        let has_path = self.has_paths || connector.origin(&item.key).is_some();
        let path = if has_path { &*item.path } else { b"" };
        let mut buffer = Vec::new();
        let read = match connector.open(PageItem::new(&item.key), &mut buffer)? {
            ItemBody::Bytes(bytes) => self.read_bytes(path, bytes),
            ItemBody::File(file) => self.read_file(path, &file),
            ItemBody::Reader(reader) => self.read_stream(path, reader),
        };
        for found in read.map_err(|error| OpenError::from_io(&error))?.findings {
            // Stored names are cut, so the names that are found again are cut in the same way.
            let member = found.member.as_deref().map(bounded);
            let stored = item.findings.iter().find(|it| {
                (it.offset, &*it.rule, &it.member) == (found.offset, &*found.rule, &member)
            });
            if let Some(stored) = stored {
                sink(stored, found.secret.expose());
            }
        }
        Ok(())
    }

    fn read_bytes(&mut self, path: &[u8], bytes: &[u8]) -> io::Result<Reading> {
        let mut read = Reading::default();
        let sink = |finding| read.findings.push(finding);
        read.report = self.secrets.scanner.scan_bytes(&mut self.scratch, path, bytes, sink);
        if !read.findings.is_empty() {
            read.version = Some(hash_content(bytes)?);
        }
        Ok(read)
    }

    fn read_stream(&mut self, path: &[u8], reader: impl Read) -> io::Result<Reading> {
        let mut read = Reading::default();
        let sink = |finding| read.findings.push(finding);
        read.report = self.secrets.scanner.scan_reader(&mut self.scratch, path, reader, sink)?;
        Ok(read)
    }

    fn read_file(&mut self, path: &[u8], file: &File) -> io::Result<Reading> {
        read_unchanged(file, |file| {
            let mut read = Reading::default();
            let sink = |finding| read.findings.push(finding);
            read.report =
                self.secrets.scanner.scan_open_file(&mut self.scratch, path, file, sink)?;
            if !read.findings.is_empty() {
                // The same open file and not the path, which may name another file by now.
                (&mut &*file).rewind()?;
                read.version = Some(hash_content(file)?);
            }
            Ok(read)
        })
    }

    fn stored(
        &self,
        key: &[u8],
        path: &[u8],
        revision: &str,
        read: Reading,
    ) -> Option<ItemFindings> {
        let mut gaps: Vec<Gap> = Vec::new();
        let mut binaries = 0;
        for unread in &read.report.unread {
            match unread.reason {
                UnreadReason::Binary => binaries += 1,
                // The last one represents all further ones.
                _ if gaps.len() == GAPS_MAX => {
                    gaps.push(Gap { member: None, reason: "more".into() });
                }
                _ if gaps.len() > GAPS_MAX => {}
                reason => gaps.push(Gap {
                    member: unread.member.as_deref().map(bounded),
                    reason: reason.name().into(),
                }),
            }
        }
        // Counted and no gap: contents that are not text are passed over by policy (ADR 121).
        self.secrets.binaries.fetch_add(binaries, Ordering::Relaxed);
        if read.is_torn {
            gaps.push(Gap { member: None, reason: "changed".into() });
        }
        // Without findings there is no hash, and no id that would contain it.
        let version = ObjectVersionId::from_version(&read.version.unwrap_or_default());
        let mut stored = ItemFindings {
            key: key.into(),
            path: path.into(),
            revision: revision.into(),
            version,
            policy: self.secrets.policy,
            tenant: self.tenant,
            findings: Vec::new(),
            gaps,
        };
        let item = ItemIdentityKey::new(self.tag, self.instance, key);
        let item = StableItemId::derive(&item);
        // Without findings yet: their texts are added below.
        let mut bytes = stored.encode().len();
        for finding in &read.findings {
            let found = self.found(item, finding);
            // Counted before it is added: the results of an item that exceed the limit of the
            // runtime are refused as a whole.
            bytes += found.encoded_len();
            if bytes > ITEM_BYTES_MAX {
                stored.gaps.push(Gap { member: None, reason: "too-many-findings".into() });
                break;
            }
            stored.findings.push(found);
        }
        let is_empty = stored.findings.is_empty() && stored.gaps.is_empty();
        (!is_empty).then_some(stored)
    }

    fn found(&self, item: StableItemId, finding: &Finding) -> StoredFinding {
        // Under the tenant's key: without it, a hash of a short secret could be reversed by trying
        // all of them.
        let secret = SecretHash::derive(&self.secrets.key, &finding.secret.norm_hash());
        let inputs =
            FindingIdInputs { tenant: self.tenant, item, rule: finding.fingerprint, secret };
        StoredFinding {
            rule: finding.rule.as_ref().into(),
            confidence: finding.confidence,
            checksum: finding.checksum,
            offset: finding.offset,
            length: finding.length,
            line: finding.line,
            column: finding.column,
            decoded: finding.decoded,
            allowed: finding.allowed,
            member: finding.member.as_deref().map(bounded),
            details: finding
                .details
                .iter()
                .map(|(k, v)| ((*k).into(), v.as_str().into()))
                .collect(),
            redacted: finding.secret.redacted().into(),
            secret: *secret.as_bytes(),
            id: FindingId::derive(&inputs),
        }
    }
}

impl std::fmt::Debug for ItemScanner<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ItemScanner").field("secrets", &self.secrets).finish_non_exhaustive()
    }
}

/// The tag of sources whose items are rows.
const ROWS: ConnectorTag = match ConnectorTag::try_from_ascii(b"rows") {
    Ok(tag) => tag,
    Err(_) => panic!("four letters"),
};

/// Reads a file; again if it changed meanwhile, since an old and a new part may hide a secret
/// between them.
pub(super) fn read_unchanged(
    file: &File,
    mut read: impl FnMut(&File) -> io::Result<Reading>,
) -> io::Result<Reading> {
    let mut tries = 0;
    loop {
        let before = stamp(file)?;
        let mut reading = read(file)?;
        tries += 1;
        reading.is_torn = stamp(file)? != before;
        if !reading.is_torn || tries == FILE_READS_MAX {
            return Ok(reading);
        }
        (&mut &*file).rewind()?;
    }
}

/// One reading of an item.
#[derive(Default)]
pub(super) struct Reading {
    findings: Vec<Finding>,
    report: Report,
    /// The hash of the content, if there are findings.
    version: Option<[u8; 32]>,
    /// The file changed while it was read.
    pub(super) is_torn: bool,
}

/// What differs when the content of a file does, as far as the system shows it.
fn stamp(file: &File) -> io::Result<(u64, i64, i64, i64, i64)> {
    let metadata = file.metadata()?;
    let (modified, changed) = (metadata.mtime(), metadata.ctime());
    Ok((metadata.len(), modified, metadata.mtime_nsec(), changed, metadata.ctime_nsec()))
}

fn hash_content(mut content: impl Read) -> io::Result<[u8; 32]> {
    let mut hasher = CanonicalHasher::for_domain(Domain::CONTENT_V1);
    let mut chunk = vec![0; HASH_CHUNK];
    loop {
        match content.read(&mut chunk) {
            Ok(0) => return Ok(hasher.finalize_32()),
            Ok(read) => hasher.write_raw(&chunk[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Cuts the beginning of a name that is too long: its end names the file.
fn bounded(name: &str) -> Box<str> {
    if name.len() <= MEMBER_LEN_MAX {
        return name.into();
    }
    let from = name.ceil_char_boundary(name.len() - MEMBER_LEN_MAX);
    format!("…{}", &name[from..]).into()
}
