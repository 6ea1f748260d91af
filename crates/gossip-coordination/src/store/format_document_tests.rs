//! `docs/storage-format.md` is held to the code: every field table, key pattern, flag, limit and
//! number in it is compared with what the encoders write, and its golden records must decode and
//! encode to themselves. The kernel that made them may change; their meaning may not.

use std::fmt::Debug;

use gossip_contracts::coordination::{
    MAX_INITIAL_SHARDS, MAX_KEY_SIZE, MAX_METADATA_SIZE, MAX_SPAWNED_PER_SHARD, MAX_SPLIT_CHILDREN,
    MAX_TOKEN_SIZE,
};
use gossip_contracts::identity::ShardId;

use super::codec::{self, CHECKSUM_LEN, FORMAT_VERSION, HANDOFF_PAYLOAD_MAX, HEAD_LEN};
use super::key::{KEY_LEN_MAX, Key, KeyKind};
use super::key_tests::is_reserved;
use super::samples::{Sample, decode, reserved_keys, sample_of, samples};
use super::scatter::{scatter, unscatter};
use crate::lease::{OP_LOG_CAP, OpKind, OpResult};
use crate::park_context::PARK_CONTEXT_MAX;
use crate::record::{ParkReason, ShardStatus};
use crate::run::{RUN_OP_LOG_CAP, RunOpKind, RunStatus};
use crate::side_records::{
    FAILURE_STDERR_MAX, FAILURE_TEXT_MAX, FailureKind, HOST_NAME_MAX, RESULT_BLOCK_MAX,
};
use crate::stored_events::EVENTS_PER_WRITER;
use crate::workers::WorkerState;

const DOCUMENT: &str = include_str!("../../../../docs/storage-format.md");

/// The lines below the heading that starts with `heading`, up to the next heading.
fn section(heading: &str) -> Vec<&'static str> {
    let mut lines = DOCUMENT.lines().skip_while(|line| !line.starts_with(heading));
    assert!(lines.next().is_some(), "the document has a section {heading}");
    lines.take_while(|line| !line.starts_with('#')).collect()
}

/// The cells of the rows of a section's table, without its head.
fn table(heading: &str) -> Vec<Vec<&'static str>> {
    let rows = section(heading).into_iter().filter(|line| line.starts_with('|'));
    let cells = |row: &'static str| row.trim_matches('|').split('|').map(str::trim).collect();
    rows.skip(2).map(cells).collect()
}

fn samples_of(kind: KeyKind) -> impl Iterator<Item = &'static Sample> + Clone {
    samples().iter().filter(move |sample| sample.key.kind() == kind)
}

fn heading_of(kind: KeyKind) -> String {
    format!("### {} `{}`", kind as u8, kind.name())
}

/// What the one value is that all samples agree on, or what to say if they do not.
fn agreed(mut values: impl Iterator<Item = Option<usize>>, otherwise: &str) -> String {
    let first = values.next().flatten();
    match first {
        Some(value) if values.all(|other| other == first) => value.to_string(),
        Some(_) | None => otherwise.to_owned(),
    }
}

fn has(sample: &Sample, field: &str) -> bool {
    sample.fields.0.iter().any(|(name, _)| *name == field)
}

/// Offset, width and presence of a field, as the document should give them.
fn described(kind: KeyKind, field: &str) -> [String; 3] {
    let place = |sample: &Sample| has(sample, field).then(|| sample.fields.place(field));
    let offset = agreed(samples_of(kind).map(|sample| place(sample).map(|(at, _)| at)), "–");
    let with = samples_of(kind).filter(|sample| has(sample, field));
    let width = agreed(with.map(|sample| place(sample).map(|(_, len)| len)), "n");
    let always = samples_of(kind).all(|sample| has(sample, field));
    [offset, width, if always { "always" } else { "if" }.to_owned()]
}

#[test]
fn field_tables_are_what_the_encoders_write() {
    for kind in KeyKind::ALL {
        let rows = table(&heading_of(kind));
        for row in &rows {
            let [offset, width, field, present, meaning] = row[..] else {
                panic!("five columns in the table of {kind:?}: {row:?}");
            };
            let field = field.trim_matches('`');
            let [real_offset, real_width, real_present] = described(kind, field);
            assert_eq!([offset, width], [real_offset, real_width], "{kind:?} {field}");
            assert_eq!(present == "always", real_present == "always", "{kind:?} {field}");
            assert!(!meaning.is_empty());
        }
        let listed: Vec<&str> = rows.iter().map(|row| row[2].trim_matches('`')).collect();
        for sample in samples_of(kind) {
            let mut rest = listed.iter();
            let mut written: Vec<&str> = Vec::new();
            for (name, _) in &sample.fields.0 {
                if !written.contains(name) {
                    written.push(name);
                }
            }
            for name in written {
                assert!(rest.any(|listed| *listed == name), "{kind:?}: {name} in its place");
            }
        }
        let known = |name: &&str| samples_of(kind).any(|sample| has(sample, name));
        assert!(listed.iter().all(known), "{kind:?}: nothing that is not written");
    }
}

#[test]
fn key_patterns_are_what_keys_look_like() {
    for kind in KeyKind::ALL {
        let lines = section(&heading_of(kind));
        let line = lines.iter().find_map(|line| line.strip_prefix("Key: `")).expect("a key line");
        let (pattern, rest) = line.split_once('`').expect("a pattern in backticks");
        for sample in samples_of(kind) {
            let bytes = sample.key.to_bytes();
            let key = str::from_utf8(bytes.as_bytes()).unwrap();
            assert!(matches_pattern(pattern, key), "{pattern} and {key}");
            assert_eq!(rest, format!(", {} bytes.", key.len()), "{kind:?}");
        }
    }
}

#[test]
fn reserved_kinds_are_documented_and_have_no_golden_record() {
    for key in reserved_keys() {
        let (kind, bytes) = (key.kind(), key.to_bytes());
        assert!(is_reserved(kind));
        assert_eq!(Key::parse(bytes.as_bytes()), Ok(key));
        let lines = section(&heading_of(kind));
        let text = str::from_utf8(bytes.as_bytes()).unwrap();
        let line = lines.iter().find_map(|line| line.strip_prefix("Key: `")).expect("a key line");
        let (pattern, rest) = line.split_once('`').expect("a pattern in backticks");
        assert!(matches_pattern(pattern, text), "{pattern} and {text}");
        assert_eq!(rest, format!(", {} bytes.", text.len()), "{kind:?}");
        assert!(lines.iter().any(|line| line.starts_with("Reserved")), "{kind:?}");
        assert!(!DOCUMENT.contains(&format!("### Golden `{}`", kind.name())), "{kind:?}");
    }
    let kinds = KeyKind::ALL.into_iter().filter(|kind| is_reserved(*kind));
    assert!(kinds.eq(reserved_keys().iter().map(Key::kind)), "one key of each reserved kind");
}

/// Whether each part of the path is what the pattern says: itself, or digits of the right number.
fn matches_pattern(pattern: &str, key: &str) -> bool {
    let parts: Vec<_> = pattern.split('/').zip(key.split('/')).collect();
    let fits = |(pattern, part): &(&str, &str)| {
        let digits = part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        match *pattern {
            "<tenant>" => digits && part.len() == 64,
            "<run>" | "<shard>" | "<time>" | "<place>" | "<worker>" | "<handoff>" | "<party>"
            | "<writer>" | "<block>" => digits && part.len() == 16,
            "<item>" => digits && part.len() == 16,
            "<chunk>" | "<number>" | "<slot>" => digits && part.len() == 4,
            name => name == *part,
        }
    };
    pattern.split('/').count() == key.split('/').count() && parts.iter().all(fits)
}

#[test]
fn places_are_as_listed() {
    let rows = table("## Places");
    assert!(rows.len() >= 5);
    for row in rows {
        let number = |cell: &str| u64::from_str_radix(cell.trim_matches('`'), 16).unwrap();
        let (id, place) = (ShardId::from_raw(number(row[0])), number(row[1]));
        assert_eq!((scatter(id), unscatter(place)), (place, id), "{}", row[0]);
    }
}

#[test]
fn the_frame_is_as_described() {
    let rows = table("## Frame");
    let fields: Vec<[&str; 3]> = rows.iter().map(|row| [row[0], row[1], row[2]]).collect();
    assert_eq!(
        fields,
        [
            ["0", "1", "`version`"],
            ["1", "1", "`kind`"],
            ["2", "4", "`payload_len`"],
            ["6", "n", "`payload`"],
            ["–", "8", "`checksum`"],
        ]
    );
    assert_eq!((HEAD_LEN, CHECKSUM_LEN, FORMAT_VERSION), (6, 8, 2));
    for sample in samples() {
        let len = u32::try_from(sample.payload().len()).unwrap().to_le_bytes();
        assert_eq!(sample.value[..2], [FORMAT_VERSION, sample.key.kind() as u8]);
        assert_eq!(sample.value[2..HEAD_LEN], len);
    }
}

#[test]
fn flags_say_which_fields_are_there() {
    for (heading, kind) in [
        ("#### Flags of `run`", KeyKind::RunHead),
        ("#### Flags of `hot`", KeyKind::ShardHot),
        ("#### Flags of `cold`", KeyKind::ShardCold),
    ] {
        let rows = table(heading);
        for sample in samples_of(kind) {
            let flags = sample.payload()[0];
            assert_eq!(u32::from(flags) >> rows.len(), 0, "{kind:?}: no flag but those listed");
            for row in &rows {
                let bit: u8 = row[0].parse().unwrap();
                if let Some(field) = row[1].strip_prefix('`') {
                    let there = has(sample, field.trim_end_matches('`'));
                    assert_eq!(flags >> bit & 1 == 1, there, "{kind:?} {field}");
                }
            }
        }
        let bits: Vec<usize> = rows.iter().map(|row| row[0].parse().unwrap()).collect();
        assert!(bits.iter().copied().eq(0..rows.len()));
    }
}

#[test]
fn numbers_of_enums_are_as_listed() {
    check_numbers("### Shard status", &ShardStatus::ALL, |it| *it as u8);
    check_numbers("### Park reason", &ParkReason::ALL, |it| *it as u8);
    check_numbers("### Operation on a shard", &OpKind::ALL, |it| *it as u8);
    check_numbers("### Result of an operation", &[OpResult::Completed], |it| *it as u8);
    check_numbers("### Run status", &RunStatus::ALL, |it| *it as u8);
    check_numbers("### Operation on a run", &RunOpKind::ALL, |it| *it as u8);
    check_numbers("### Worker state", &WorkerState::ALL, |it| *it as u8);
    check_numbers("### Failure", &FailureKind::ALL, |it| *it as u8);
    check_numbers("### Event", &codec::EventCode::ALL, |it| *it as u8);
    let kinds = KeyKind::ALL.map(|kind| (kind.name(), kind as u8));
    for (name, number) in kinds {
        assert!(DOCUMENT.contains(&format!("### {number} `{name}`")));
    }
}

fn check_numbers<T: Debug>(heading: &str, all: &[T], number: impl Fn(&T) -> u8) {
    let listed: Vec<(u8, String)> = table(heading)
        .iter()
        .map(|row| (row[0].parse().unwrap(), row[1].trim_matches('`').to_owned()))
        .collect();
    let real: Vec<(u8, String)> = all.iter().map(|it| (number(it), format!("{it:?}"))).collect();
    assert_eq!(listed, real, "{heading}");
}

/// The golden record of a kind: its key and its value.
fn golden(kind: KeyKind) -> (Key, Vec<u8>) {
    let lines = section(&format!("### Golden `{}`", kind.name()));
    let mut block = lines.iter().skip_while(|line| !line.starts_with("```")).skip(1);
    let key = block.next().expect("a key");
    let digits: String = block.take_while(|line| !line.starts_with("```")).copied().collect();
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    let value = digits.as_bytes().chunks(2).map(byte).collect();
    (Key::parse(key.as_bytes()).expect("a key of ours"), value)
}

/// What the document would say of a kind if it were written today.
fn block_of(kind: KeyKind) -> String {
    let sample = sample_of(kind, "full");
    let hex = |line: &[u8]| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let lines: Vec<String> = sample.value.chunks(48).map(hex).collect();
    let key = sample.key.to_bytes();
    format!("\n{}\n{}", str::from_utf8(key.as_bytes()).unwrap(), lines.join("\n"))
}

#[test]
fn limits_are_as_listed() {
    let listed: Vec<(&str, String)> = table("## Limits")
        .iter()
        .map(|row| (row[0].trim_matches('`'), row[1].replace(',', "")))
        .collect();
    let real = [
        ("MAX_KEY_SIZE", MAX_KEY_SIZE),
        ("MAX_TOKEN_SIZE", MAX_TOKEN_SIZE),
        ("MAX_METADATA_SIZE", MAX_METADATA_SIZE),
        ("MAX_SPAWNED_PER_SHARD", MAX_SPAWNED_PER_SHARD),
        ("MAX_INITIAL_SHARDS", MAX_INITIAL_SHARDS),
        ("OP_LOG_CAP", OP_LOG_CAP),
        ("RUN_OP_LOG_CAP", RUN_OP_LOG_CAP),
        ("HANDOFF_PAYLOAD_MAX", HANDOFF_PAYLOAD_MAX),
        ("PARK_CONTEXT_MAX", PARK_CONTEXT_MAX),
        ("FAILURE_TEXT_MAX", FAILURE_TEXT_MAX),
        ("FAILURE_STDERR_MAX", FAILURE_STDERR_MAX),
        ("HOST_NAME_MAX", HOST_NAME_MAX),
        ("RESULT_BLOCK_MAX", RESULT_BLOCK_MAX),
        ("EVENTS_PER_WRITER", usize::from(EVENTS_PER_WRITER)),
        ("MAX_SPLIT_CHILDREN", MAX_SPLIT_CHILDREN),
        ("KEY_LEN_MAX", KEY_LEN_MAX),
    ];
    assert_eq!(listed, real.map(|(name, value)| (name, value.to_string())));
}

#[test]
fn golden_records_decode_and_encode_to_the_same_bytes() {
    for kind in KeyKind::ALL.into_iter().filter(|kind| !is_reserved(*kind)) {
        let (key, value) = golden(kind);
        assert_eq!(key.kind(), kind);
        let partner = match kind {
            KeyKind::ShardHot => Some(golden(KeyKind::ShardCold).1),
            KeyKind::ShardCold => Some(golden(KeyKind::ShardHot).1),
            _ => None,
        };
        let decoded = decode(&key, &value, partner.as_deref());
        assert_eq!(decoded, Ok(()), "{kind:?}; today's encoder writes{}", block_of(kind));
        // The kernel that made a shard or a run may change; the key of an index entry may not.
        if kind == KeyKind::ClaimIndex {
            let sample = sample_of(kind, "full");
            assert_eq!((key, &value), (sample.key, &sample.value), "write{}", block_of(kind));
        }
    }
}

#[test]
fn the_golden_shard_says_what_the_document_says_of_it() {
    let (key, value) = golden(KeyKind::ShardHot);
    let Key::ShardHot { tenant, shard } = key else { unreachable!("a hot shard") };
    let hot = codec::decode_hot(tenant, shard, &value).unwrap();
    assert_eq!((tenant.as_bytes(), shard.run().as_raw()), (&[7; 32], 1));
    assert_eq!((hot.status, hot.fence.as_raw(), hot.attempts), (ShardStatus::Active, 3, 0));
    assert_eq!((hot.acquire_count, hot.op_log.len(), hot.spawned_count), (2, 16, 1));
    assert_eq!(hot.cursor.last_key(), Some([b'p'; 64].as_slice()));
    assert_eq!(hot.cursor.token(), Some(b"token of the connector".as_slice()));
    let lease = hot.lease.expect("it is leased");
    assert_eq!((lease.owner().as_raw(), lease.deadline().as_raw()), (2, 105));
    let offer = hot.offer.expect("it is offered");
    assert_eq!((offer.destination.as_raw(), offer.deadline.as_raw()), (3, 58));
    assert_eq!(hot.last_handoff.map(|id| id.as_raw()), Some(4));
    assert_eq!(hot.request.map(|request| request.action().label()), Some("split"));
    assert_eq!(hot.indexed_at.map(|at| at.as_raw()), Some(105));
}
