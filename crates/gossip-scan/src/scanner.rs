//! The scanner: rules compiled once, shared by threads, with scratch memory per thread.
//!
//! A scanner opens the files it is given and nothing else. It starts no thread and reads no clock.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use gossip_contracts::identity::{
    CanonicalHasher, Domain, IdHashMode, PolicyHash, PolicyHashInputs,
};

use crate::archive::{self, ArchiveLimits};
use crate::compiled::CompiledRule;
use crate::content;
use crate::engine::{self, Caches, Engine, ItemTraits, Session};
use crate::error::RuleError;
use crate::finding::{Finding, Report, Unread, UnreadReason};
use crate::prefilter::Prefilter;
use crate::rule::RuleSet;
use crate::stream::{Buffers, Sink, Text, read_full};

/// Bytes read at a time. Larger chunks save nothing; smaller ones repeat the overlap more often.
const CHUNK_LEN: usize = 1 << 20;
/// Bytes that decide whether an input is text, binary or an archive.
pub(crate) const HEAD_LEN: usize = 8 << 10;

/// How a scanner treats its inputs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScanOptions {
    /// Bytes read at a time; at least one. The result does not depend on it.
    pub chunk_len: usize,
    /// Leave out rules that guess from context words.
    pub structured_only: bool,
    /// Search inputs whose content is not text.
    pub binaries: bool,
    /// Unpack archives and compressed files within these limits; `None` searches their raw bytes.
    pub archives: Option<ArchiveLimits>,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self {
            chunk_len: CHUNK_LEN,
            structured_only: false,
            binaries: false,
            archives: Some(ArchiveLimits::default()),
        }
    }
}

/// Compiled rules. Shared by reference; every thread has its own [`Scratch`].
pub struct Scanner {
    engine: Engine,
    options: ScanOptions,
    rules_digest: [u8; 32],
}

/// Memory that one thread reuses from item to item. Fits any scanner.
pub struct Scratch {
    identity: Arc<()>,
    buffers: Buffers,
}

impl Scanner {
    /// Checks and compiles rules.
    ///
    /// # Errors
    ///
    /// If a rule is wrong or would be slow.
    pub fn new(rules: &RuleSet, options: ScanOptions) -> Result<Self, RuleError> {
        let compiled: Result<Vec<_>, _> =
            rules.iter().map(|rule| CompiledRule::new(rule, rules.is_changed(&rule.id))).collect();
        let rules_digest = rules.digest();
        let rules = compiled?;
        let prefilter = Prefilter::new(&rules)?;
        let engine = Engine { rules, prefilter, identity: Arc::new(()) };
        Ok(Self { engine, options, rules_digest })
    }

    /// Returns fresh scratch memory for a thread.
    #[must_use]
    pub fn scratch(&self) -> Scratch {
        let buffers =
            Buffers { caches: Caches::default(), text: Vec::new(), traits: ItemTraits::default() };
        Scratch { identity: Arc::clone(&self.engine.identity), buffers }
    }

    /// Returns the digest of the rules, an input of the policy hash.
    #[must_use]
    pub const fn rules_digest(&self) -> &[u8; 32] {
        &self.rules_digest
    }

    /// Returns the hash of the policy that rules and options are: equal for scanners that find the
    /// same in every input.
    #[must_use]
    pub fn policy_hash(&self, mode: IdHashMode) -> PolicyHash {
        // Every field by name, so that a new option cannot be forgotten here. The chunk size
        // changes no result.
        let ScanOptions { chunk_len: _, structured_only, binaries, archives } = &self.options;
        let mut hasher = CanonicalHasher::for_domain(Domain::RULES_DIGEST_V1);
        hasher.write_raw(&self.rules_digest);
        for flag in [*structured_only, *binaries, archives.is_some()] {
            hasher.write_u8(flag.into());
        }
        if let Some(limits) = archives {
            hasher.write_u8(limits.depth);
            hasher.write_u32(limits.entries);
            for number in [limits.entry_bytes, limits.total_bytes, limits.ratio] {
                hasher.write_u64(number);
            }
        }
        PolicyHash::derive(&PolicyHashInputs::current(mode, hasher.finalize_32()))
    }

    /// Returns the number of literals searched for, and the bytes of their automaton.
    #[must_use]
    pub fn automaton_size(&self) -> (usize, usize) {
        self.engine.prefilter.size()
    }

    /// Searches bytes in memory. The path decides which rules for file names apply.
    ///
    /// Findings are passed to `sink` in the order of their offsets, within each archive member.
    pub fn scan_bytes(
        &self,
        scratch: &mut Scratch,
        path: &[u8],
        bytes: &[u8],
        mut sink: impl FnMut(Finding),
    ) -> Report {
        let mut report = Report::default();
        let buffers = self.fit(scratch, path);
        let head = &bytes[..bytes.len().min(HEAD_LEN)];
        if let Some(limits) = &self.options.archives
            // Before the check for binaries, because every archive has zero bytes.
            && let Some(kind) = content::archive_kind(head)
        {
            let mut scan =
                MemberScan { scanner: self, buffers, report: &mut report, sink: &mut sink };
            archive::unpack_bytes(kind, bytes, limits, &mut scan);
            return report;
        }
        if self.is_skipped(head) {
            report.unread.push(Unread { member: None, reason: UnreadReason::Binary });
            return report;
        }
        let session = self.session(&mut buffers.caches, &buffers.traits);
        Text::new(session, None, &mut report, &mut sink).whole(bytes);
        report
    }

    /// Searches everything that a reader returns, in bounded memory.
    ///
    /// A zip archive needs its end first, so one that comes from a reader is held in memory up to
    /// the limit for one member; use [`Scanner::scan_file`] for larger ones.
    ///
    /// # Errors
    ///
    /// If the reader fails. Findings passed to `sink` before are right but not complete.
    pub fn scan_reader(
        &self,
        scratch: &mut Scratch,
        path: &[u8],
        mut reader: impl Read,
        mut sink: impl FnMut(Finding),
    ) -> io::Result<Report> {
        let buffers = self.fit(scratch, path);
        self.read_any(buffers, &mut reader, None, &mut sink)
    }

    /// Searches a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened or read.
    pub fn scan_file(
        &self,
        scratch: &mut Scratch,
        path: &Path,
        sink: impl FnMut(Finding),
    ) -> io::Result<Report> {
        let file = File::open(path)?;
        self.scan_open_file(scratch, path.as_os_str().as_encoded_bytes(), &file, sink)
    }

    /// Searches an open file from its current position, which is its start for archives. The path
    /// decides which rules for file names apply.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn scan_open_file(
        &self,
        scratch: &mut Scratch,
        path: &[u8],
        file: &File,
        mut sink: impl FnMut(Finding),
    ) -> io::Result<Report> {
        let buffers = self.fit(scratch, path);
        let mut reader = file;
        self.read_any(buffers, &mut reader, Some(file), &mut sink)
    }

    /// Returns whether an input with this start is left out.
    pub(crate) fn is_skipped(&self, head: &[u8]) -> bool {
        !self.options.binaries && content::is_binary(head)
    }

    fn read_any(
        &self,
        buffers: &mut Buffers,
        reader: &mut dyn Read,
        file: Option<&File>,
        sink: &mut Sink<'_>,
    ) -> io::Result<Report> {
        let mut report = Report::default();
        let mut text = std::mem::take(&mut buffers.text);
        text.resize(text.len().max(HEAD_LEN), 0);
        let filled = read_full(reader, &mut text[..HEAD_LEN])?;
        let head = &text[..filled];
        let kind = content::archive_kind(head);
        let result = if let (Some(limits), Some(kind)) = (&self.options.archives, kind) {
            // A reader cannot go back, so the bytes that were looked at are put in front of the
            // rest.
            let mut joined = head.chain(reader);
            let mut scan = MemberScan { scanner: self, buffers, report: &mut report, sink };
            archive::unpack(kind, &mut joined, file, limits, &mut scan)
        } else if self.is_skipped(head) {
            report.unread.push(Unread { member: None, reason: UnreadReason::Binary });
            Ok(())
        } else {
            let session = self.session(&mut buffers.caches, &buffers.traits);
            let scan = Text::new(session, None, &mut report, sink);
            scan.chunks(reader, &mut text, filled, self.options.chunk_len.max(1))
        };
        buffers.text = text;
        result.map(|()| report)
    }

    fn session<'a>(&'a self, caches: &'a mut Caches, traits: &'a ItemTraits) -> Session<'a> {
        Session::new(&self.engine, caches, traits, self.options.structured_only)
    }

    /// Prepares scratch memory for an item of this scanner.
    fn fit<'a>(&self, scratch: &'a mut Scratch, path: &[u8]) -> &'a mut Buffers {
        // A cache of the pattern of another scanner gives wrong results or a panic.
        if !Arc::ptr_eq(&scratch.identity, &self.engine.identity) {
            scratch.identity = Arc::clone(&self.engine.identity);
            scratch.buffers.caches = Caches::default();
        }
        scratch.buffers.traits = self.traits(path);
        &mut scratch.buffers
    }

    fn traits(&self, path: &[u8]) -> ItemTraits {
        // Both separators, because members of archives have those of the system that packed them.
        let name = path.rsplit(|it| matches!(it, b'/' | b'\\')).next().unwrap_or_default();
        let applies = |rule: &CompiledRule| {
            let files = &rule.rule.files;
            files.is_empty() || files.iter().any(|it| content::name_matches(it.as_bytes(), name))
        };
        let applies = self.engine.rules.iter().map(applies).collect();
        ItemTraits { is_config: engine::is_config_path(path), applies }
    }
}

/// Scans the members of one archive.
pub(crate) struct MemberScan<'a, 's> {
    scanner: &'a Scanner,
    buffers: &'a mut Buffers,
    pub(crate) report: &'a mut Report,
    sink: &'a mut Sink<'s>,
}

impl MemberScan<'_, '_> {
    /// Searches one member, of which `head` has been read.
    ///
    /// # Errors
    ///
    /// If the reader fails: the member is damaged, or a limit was reached.
    pub(crate) fn member(
        &mut self,
        name: &str,
        head: &[u8],
        reader: &mut dyn Read,
    ) -> io::Result<()> {
        let member: Arc<str> = name.into();
        if self.scanner.is_skipped(head) {
            self.unread(name, UnreadReason::Binary);
            return Ok(());
        }
        // Those of the member: a configuration file in an archive is one, whatever the archive is
        // called.
        self.buffers.traits = self.scanner.traits(name.as_bytes());
        let mut text = std::mem::take(&mut self.buffers.text);
        text.resize(text.len().max(head.len()), 0);
        text[..head.len()].copy_from_slice(head);
        let session = self.scanner.session(&mut self.buffers.caches, &self.buffers.traits);
        let scan = Text::new(session, Some(member), self.report, self.sink);
        let chunk_len = self.scanner.options.chunk_len.max(1);
        let result = scan.chunks(reader, &mut text, head.len(), chunk_len);
        self.buffers.text = text;
        result
    }

    /// Notes something that was not read.
    pub(crate) fn unread(&mut self, name: &str, reason: UnreadReason) {
        let member = (!name.is_empty()).then(|| name.into());
        self.report.unread.push(Unread { member, reason });
    }
}
