//! Parsers of user input and of handoff records.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

use gossip::store::StoreUrl;
use gossip_contracts::identity::LogicalTime;
use gossip_handoff::lease_handoff::{MoveTerms, worker_name};
use gossip_handoff::{Phase, Record, RecordId};
use gossip_scanner_runtime::connectors::{Source, SourceOptions};

/// Parsing a handoff record, with its snapshot, never panics, and a valid record has no other
/// encoding.
pub(crate) fn move_record(data: &[u8]) -> bool {
    let Ok(record) = Record::from_bytes(data) else { return false };
    assert_eq!(record.to_bytes(), data);
    true
}

/// Reading what a record is about never panics, and a move has one spelling. The input is the
/// subject and the two owners, each behind a zero byte.
pub(crate) fn move_terms(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let mut parts = text.split('\0').map(str::to_owned);
    let mut part = || parts.next().unwrap_or_default();
    let record = Record {
        id: RecordId::new("move").expect("a short name"),
        subject: part(),
        from: part(),
        to: part(),
        state: Phase::Lock,
        started_at: LogicalTime::ZERO,
        last_transition: LogicalTime::ZERO,
        snapshot: Vec::new(),
        error: String::new(),
    };
    let Ok(terms) = MoveTerms::of(&record) else { return false };
    let (run, shard) = (terms.key.run().as_raw(), terms.key.shard().as_raw());
    let (fence, deadline) = (terms.fence.as_raw(), terms.offer_deadline.as_raw());
    let subject = format!("shard/{run:016x}/{shard:016x}/{fence:016x}/{deadline:016x}");
    assert_eq!(record.subject, subject, "another spelling of the same move");
    let owners = [terms.from, terms.to].map(worker_name);
    assert_eq!([&record.from, &record.to], [&owners[0], &owners[1]]);
    true
}

/// Reading a range of integers never panics, and what it is typed as again is the same range.
/// Paths are not tried: they are looked up on the disk.
pub(crate) fn source_range(data: &[u8]) -> bool {
    let typed = [b"range:", data].concat();
    let options = SourceOptions::default();
    let Ok(source) = Source::parse(OsStr::from_bytes(&typed), options) else { return false };
    let again = Source::parse(&source.text(), options).expect("a printed range can be parsed");
    assert_eq!(again.canonical(), source.canonical(), "another source");
    let root = source.root();
    assert!(root.as_spec_ref().start < root.as_spec_ref().end, "a root without keys");
    true
}

/// Parsing the URL of a store never panics, and neither the result nor an error shows a password.
pub(crate) fn store_url(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    match StoreUrl::from_str(text) {
        Ok(url) => {
            if let StoreUrl::Postgres(config) = &url {
                assert!(config.validate().is_ok(), "an invalid configuration was accepted");
            }
            if let StoreUrl::Etcd(mut config) = url {
                assert!(config.validate().is_ok(), "an invalid configuration was accepted");
                let shown = format!("{config:?}");
                if let Some(credentials) = &mut config.credentials {
                    let len = credentials.password.len();
                    credentials.password = "*".repeat(len);
                }
                assert_eq!(format!("{config:?}"), shown, "a password is shown");
            }
            true
        }
        Err(error) => {
            assert!(error.to_string().len() < SHOWN_LEN_MAX, "an error shows the URL");
            false
        }
    }
}

/// Maximum length of an error message about a URL: it has the position and the expectation.
const SHOWN_LEN_MAX: usize = 256;
