//! Manifests of shards.

use gossip_contracts::coordination::{
    CursorUpdate, InitialShardInput, MAX_INITIAL_SHARDS, MAX_KEY_SIZE, MAX_METADATA_SIZE,
    MAX_TOKEN_SIZE, ManifestValidationError, ShardSpecRef, validate_manifest,
};
use gossip_contracts::identity::ShardId;

use crate::input::Reader;

/// Rows per input; the naive checker compares every pair.
const ROWS_MAX: usize = 16;
/// This first byte repeats the rows past the limit, which no input could hold.
const FLOOD: u8 = 0xA5;

/// One row with its own bytes; `validate_manifest` only borrows.
struct Row {
    id: u64,
    start: Vec<u8>,
    end: Vec<u8>,
    metadata: Vec<u8>,
    key: Vec<u8>,
    token: Vec<u8>,
}

/// The validator of manifests agrees with a naive checker: on acceptance, and on the rule
/// that refuses the rest.
pub(crate) fn validation(data: &[u8]) -> bool {
    let mut reader = Reader::new(data);
    let is_flood = reader.byte() == FLOOD && reader.is_long();
    let mut rows = Vec::new();
    while !reader.is_empty() && rows.len() < ROWS_MAX {
        rows.push(Row::read(&mut reader));
    }
    let mut inputs: Vec<InitialShardInput<'_>> = rows.iter().map(Row::input).collect();
    if is_flood && !inputs.is_empty() {
        inputs = inputs.iter().copied().cycle().take(MAX_INITIAL_SHARDS + 1).collect();
    }
    let refused_by = validate_manifest(&inputs).err().map(|error| rule_of(&error));
    assert_eq!(refused_by, first_broken_rule(&inputs));
    refused_by.is_none()
}

impl Row {
    fn read(reader: &mut Reader<'_>) -> Self {
        let id = reader.byte();
        // Few ids and short keys: rows must collide, overlap and touch often.
        let derived = if id & 0xE0 == 0xE0 { ShardId::DERIVED_BIT } else { 0 };
        Self {
            id: u64::from(id) | derived,
            start: reader.key(),
            end: reader.key(),
            metadata: reader.sized(MAX_METADATA_SIZE),
            key: reader.key(),
            token: reader.sized(MAX_TOKEN_SIZE),
        }
    }

    fn input(&self) -> InitialShardInput<'_> {
        let cursor = if self.key.is_empty() {
            CursorUpdate::initial()
        } else {
            // The constructor for literals checks no sizes, as a store's decoder might not.
            CursorUpdate::new(&self.key, &self.token)
        };
        InitialShardInput {
            shard_id: ShardId::from_raw(self.id),
            spec: ShardSpecRef::new(&self.start, &self.end, &self.metadata),
            cursor,
        }
    }
}

/// The documented number of the rule that an error reports.
fn rule_of(error: &ManifestValidationError) -> u8 {
    match error {
        ManifestValidationError::TooManyShards { .. } => 1,
        ManifestValidationError::Empty => 2,
        ManifestValidationError::DuplicateIds { .. } => 3,
        ManifestValidationError::UnboundedRange { .. } => 4,
        ManifestValidationError::InvalidSpec { .. } => 5,
        ManifestValidationError::OverlappingRanges { .. } => 6,
        ManifestValidationError::CursorKeyTooLarge { .. } => 7,
        ManifestValidationError::CursorOutOfBounds { .. } => 8,
        ManifestValidationError::DerivedRootId { .. } => 9,
        ManifestValidationError::CursorTokenTooLarge { .. } => 10,
        _ => panic!("an error this target does not know: add its rule"),
    }
}

/// The rules again, as plainly as they can be written.
fn first_broken_rule(rows: &[InitialShardInput<'_>]) -> Option<u8> {
    if rows.len() > MAX_INITIAL_SHARDS {
        return Some(1);
    }
    if rows.is_empty() {
        return Some(2);
    }
    let any = |is_broken: &dyn Fn(&InitialShardInput<'_>) -> bool| rows.iter().any(is_broken);
    let any_pair = |is_broken: &dyn Fn(&InitialShardInput<'_>, &InitialShardInput<'_>) -> bool| {
        (0..rows.len()).any(|i| (0..i).any(|j| is_broken(&rows[i], &rows[j])))
    };
    let key = |row: &InitialShardInput<'_>| row.cursor.last_key().unwrap_or_default().to_vec();
    let rules = [
        (3, any_pair(&|a, b| a.shard_id == b.shard_id)),
        (4, any(&|row| row.spec.start.is_empty() || row.spec.end.is_empty())),
        (5, any(&|row| !is_valid(row.spec))),
        (6, any_pair(&|a, b| a.spec.start < b.spec.end && b.spec.start < a.spec.end)),
        (7, any(&|row| key(row).len() > MAX_KEY_SIZE)),
        (8, any(&|row| !key(row).is_empty() && !contains(row.spec, &key(row)))),
        (9, any(&|row| row.shard_id.as_raw() >> 63 == 1)),
        (10, any(&|row| row.cursor.token().unwrap_or_default().len() > MAX_TOKEN_SIZE)),
    ];
    rules.into_iter().find(|(_, is_broken)| *is_broken).map(|(rule, _)| rule)
}

fn is_valid(spec: ShardSpecRef<'_>) -> bool {
    let is_small = spec.start.len() <= MAX_KEY_SIZE
        && spec.end.len() <= MAX_KEY_SIZE
        && spec.metadata.len() <= MAX_METADATA_SIZE;
    is_small && spec.start < spec.end
}

fn contains(spec: ShardSpecRef<'_>, key: &[u8]) -> bool {
    spec.start <= key && key < spec.end
}
