//! Encoding of records: valid ones round-trip, everything else is rejected.

use gossip_contracts::identity::LogicalTime;
use proptest::prelude::*;

use super::*;
use crate::record::RECORD_LEN_MAX;

/// Generates any record that a machine can produce.
fn records() -> impl Strategy<Value = Record> {
    let name = || "[a-zà-ü]{1,12}";
    let names = (name(), name(), name(), name());
    let phase = prop::sample::select(Phase::ALL.to_vec());
    let times = (0..1_000_u64, 0..1_000_u64);
    (names, phase, times, prop::collection::vec(any::<u8>(), 0..40), "[a-z ]{0,20}").prop_map(
        |((id, subject, from, to), state, (start, later), snapshot, error)| Record {
            id: RecordId::new(id).unwrap(),
            subject,
            to: format!("{from}-{to}"),
            from,
            state,
            started_at: LogicalTime::from_raw(start),
            last_transition: LogicalTime::from_raw(start + later),
            snapshot: match state {
                Phase::Lock | Phase::Complete => Vec::new(),
                _ => snapshot,
            },
            error: if state == Phase::RolledBack { error } else { String::new() },
        },
    )
}

fn sample() -> Record {
    Record {
        id: RecordId::new("i").unwrap(),
        subject: "s".to_owned(),
        from: "f".to_owned(),
        to: "t".to_owned(),
        state: Phase::RolledBack,
        started_at: LogicalTime::from_raw(1),
        last_transition: LogicalTime::from_raw(2),
        snapshot: vec![0xAB],
        error: "e".to_owned(),
    }
}

proptest! {
    #[test]
    fn a_record_round_trips_through_its_bytes(record in records()) {
        prop_assert_eq!(Record::from_bytes(&record.to_bytes()), Ok(record));
    }

    #[test]
    fn arbitrary_bytes_are_rejected_or_round_trip(
        bytes in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        if let Ok(record) = Record::from_bytes(&bytes) {
            prop_assert_eq!(record.to_bytes(), bytes);
        }
    }
}

#[test]
fn the_bytes_of_a_record_are_fixed() {
    let golden = "63\
        0100000000000000\
        0200000000000000\
        010069\
        010073\
        010066\
        010074\
        010065\
        ab";
    let hex: String = sample().to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, golden);
}

#[test]
fn every_truncation_of_the_fixed_part_is_rejected() {
    let mut record = sample();
    record.snapshot.clear();
    let bytes = record.to_bytes();
    for len in 0..bytes.len() {
        assert_eq!(Record::from_bytes(&bytes[..len]), Err(InvalidRecord::CutOff), "{len}");
    }
}

#[test]
fn a_record_with_a_violated_invariant_is_rejected() {
    let check = |change: fn(&mut Record)| {
        let mut record = sample();
        change(&mut record);
        let refused = record.check().unwrap_err();
        assert_eq!(Record::from_bytes(&record.to_bytes()), Err(refused));
        assert_eq!(Machine::from_record(record).unwrap_err(), refused);
        refused
    };
    assert_eq!(check(|record| record.to = "f".to_owned()), InvalidRecord::SameOwner);
    let too_long = check(|record| record.subject = "x".repeat(NAME_LEN_MAX + 1));
    assert_eq!(too_long, InvalidRecord::NameLength { field: "subject", len: NAME_LEN_MAX + 1 });
    let long_reason = check(|record| record.error = "x".repeat(REASON_LEN_MAX + 1));
    assert_eq!(long_reason, InvalidRecord::ReasonTooLong { len: REASON_LEN_MAX + 1 });
    let large = check(|record| record.snapshot = vec![0; SNAPSHOT_LEN_MAX + 1]);
    assert_eq!(large, InvalidRecord::SnapshotTooLarge { len: SNAPSHOT_LEN_MAX + 1 });
    let back = check(|record| record.last_transition = LogicalTime::ZERO);
    assert_eq!(back, InvalidRecord::TimeRunsBack);
    let reason = check(|record| record.state = Phase::Ack);
    assert_eq!(reason, InvalidRecord::StrayReason { state: Phase::Ack });
    let snapshot = check(|record| record.state = Phase::Lock);
    assert_eq!(snapshot, InvalidRecord::StraySnapshot { state: Phase::Lock });
}

#[test]
fn an_unknown_phase_is_rejected() {
    for number in 0..=u8::MAX {
        let known = Phase::ALL.iter().any(|phase| phase.as_u8() == number);
        assert_eq!(Phase::from_u8(number).is_ok(), known, "{number}");
        let mut bytes = sample().to_bytes();
        bytes[0] = number;
        if !known {
            let refused = InvalidRecord::UnknownPhase(UnknownPhase(number));
            assert_eq!(Record::from_bytes(&bytes), Err(refused));
        }
    }
}

#[test]
fn labels_and_numbers_are_those_of_the_seed() {
    let table: Vec<_> = Phase::ALL.iter().map(|phase| (phase.as_u8(), phase.to_string())).collect();
    let seed = [
        (1, "lock"),
        (2, "serialize"),
        (3, "transfer"),
        (4, "ack"),
        (5, "unlock"),
        (6, "complete"),
        (99, "rolled_back"),
    ];
    assert_eq!(table, seed.map(|(number, label)| (number, label.to_owned())));
}

#[test]
fn a_long_reason_is_truncated_at_a_character_boundary() {
    let id = RecordId::new("id").unwrap();
    let mut machine = Machine::new(id, "s", "f", "t", LogicalTime::from_raw(1)).unwrap();
    machine.rollback(&"ü".repeat(REASON_LEN_MAX)).unwrap();
    let reason = machine.record().error;
    assert_eq!(reason, "ü".repeat(REASON_LEN_MAX / 2));
}

#[test]
fn the_largest_record_has_record_len_max_bytes() {
    let mut record = sample();
    record.id = RecordId::new("i".repeat(NAME_LEN_MAX)).unwrap();
    record.subject = "s".repeat(NAME_LEN_MAX);
    record.from = "f".repeat(NAME_LEN_MAX);
    record.to = "t".repeat(NAME_LEN_MAX);
    record.error = "e".repeat(REASON_LEN_MAX);
    record.snapshot = vec![0; SNAPSHOT_LEN_MAX];
    assert_eq!(record.to_bytes().len(), RECORD_LEN_MAX);
    assert_eq!(Record::from_bytes(&record.to_bytes()), Ok(record));
}
