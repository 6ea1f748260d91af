//! Conformance suite for implementations of [`Repository`]; [`check`] runs it.
//!
//! Each case uses its own ids and owners, so all cases can run on one repository.

use gossip_contracts::identity::LogicalTime;

use gossip_handoff::{
    IN_PROGRESS_PAGE, InvalidRecord, Machine, Phase, Record, RecordId, Repository, RepositoryError,
    SNAPSHOT_LEN_MAX, Stored, Version,
};

/// Creates the repositories under test.
pub trait RepositoryTarget {
    /// A handle of the repository.
    type Handle: Repository;

    /// Returns a handle; all handles of a target share its records.
    fn handle(&self) -> Self::Handle;
}

/// Runs every case.
///
/// # Panics
///
/// If the repository violates a case.
pub fn check<T: RepositoryTarget>(target: &T) {
    a_record_is_read_as_it_was_saved(target);
    a_missing_record_is_not_found(target);
    a_save_compares_the_version(target);
    of_two_recoverers_one_drives(target);
    both_sides_find_a_handoff_until_it_is_over(target);
    many_handoffs_are_found_by_the_page(target);
    every_record_is_on_some_page(target);
    the_largest_snapshot_fits_and_no_larger(target);
    what_no_machine_makes_is_not_saved(target);
    only_ended_records_are_removed(target);
    a_forgotten_record_does_not_come_back(target);
}

/// Every field is kept, at its maximum length.
pub fn a_record_is_read_as_it_was_saved<T: RepositoryTarget>(target: &T) {
    let (mut writer, mut reader) = (target.handle(), target.handle());
    let mut record = record("whole", "whole-a", "whole-b");
    record.state = Phase::RolledBack;
    record.snapshot = vec![0, 255, 7];
    record.error = "no room".to_owned();
    let version = writer.save(&record, None).expect("the id is unused");
    assert_eq!(reader.get(&record.id), Ok(Stored { record, version }));
}

/// A record is found only after its save and under its id.
pub fn a_missing_record_is_not_found<T: RepositoryTarget>(target: &T) {
    let missing = RecordId::new("missing").expect("a valid name");
    assert_eq!(target.handle().get(&missing), Err(RepositoryError::RecordNotFound));
    assert_eq!(target.handle().in_progress("unknown"), Ok(Vec::new()));
}

/// Also for the first save: an id is used once.
pub fn a_save_compares_the_version<T: RepositoryTarget>(target: &T) {
    let mut records = target.handle();
    let mut record = record("versions", "versions-a", "versions-b");
    let first = records.save(&record, None).expect("the id is unused");
    let taken = records.save(&record, None);
    assert_eq!(taken, Err(RepositoryError::VersionConflict));
    record.state = Phase::Serialize;
    let second = records.save(&record, Some(first)).expect("the version is current");
    assert!(second > first, "versions rise");
    let late = records.save(&record, Some(first));
    assert_eq!(late, Err(RepositoryError::VersionConflict));
    let beyond = Version::from_raw(second.as_raw() + 1);
    assert_eq!(records.save(&record, Some(beyond)), Err(RepositoryError::VersionConflict));
    assert_eq!(records.get(&record.id).map(|stored| stored.version), Ok(second));
}

/// Two processes found the same record after a crash, and both write it.
pub fn of_two_recoverers_one_drives<T: RepositoryTarget>(target: &T) {
    let (mut one, mut other) = (target.handle(), target.handle());
    one.save(&record("race", "race-a", "race-b"), None).expect("the id is unused");
    let mut found = [&mut one, &mut other]
        .map(|records| records.in_progress("race-b").expect("the record exists").remove(0));
    for stored in &mut found {
        let mut machine =
            Machine::from_record(stored.record.clone()).expect("a saved record is valid");
        machine.rollback("the source is gone").expect("not yet moved");
        stored.record = machine.record();
    }
    let [first, second] = found;
    assert!(one.save(&first.record, Some(first.version)).is_ok());
    let lost = other.save(&second.record, Some(second.version));
    assert_eq!(lost, Err(RepositoryError::VersionConflict));
}

/// Only the source and the destination find it.
pub fn both_sides_find_a_handoff_until_it_is_over<T: RepositoryTarget>(target: &T) {
    let mut records = target.handle();
    let mut record = record("found", "found-a", "found-b");
    let mut version = records.save(&record, None).expect("the id is unused");
    let find = |records: &mut T::Handle| {
        ["found-a", "found-b", "found-c"]
            .map(|owner| records.in_progress(owner).expect("a valid query").len())
    };
    let phases = [Phase::Serialize, Phase::Transfer, Phase::Ack, Phase::Unlock];
    for state in phases {
        assert_eq!(find(&mut records), [1, 1, 0], "{state}");
        record.state = state;
        version = records.save(&record, Some(version)).expect("the version is current");
    }
    record.state = Phase::Complete;
    records.save(&record, Some(version)).expect("the version is current");
    assert_eq!(find(&mut records), [0, 0, 0]);
    assert!(records.get(&record.id).is_ok(), "an ended record is still stored");
}

/// The listing has more than one page, and each record once.
pub fn many_handoffs_are_found_by_the_page<T: RepositoryTarget>(target: &T) {
    let mut records = target.handle();
    let count = IN_PROGRESS_PAGE + 3;
    for number in 0..count {
        let record = record(&format!("many-{number}"), "many-a", &format!("many-to-{number}"));
        records.save(&record, None).expect("the id is unused");
    }
    let mut ids: Vec<RecordId> = records
        .in_progress("many-a")
        .expect("a valid query")
        .into_iter()
        .map(|stored| stored.record.id)
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count);
    let page = records.in_progress_page("many-a", None, 2).expect("a valid query");
    let next = page.next.expect("there are more");
    let rest = records.in_progress_page("many-a", Some(&next), count).expect("a valid query");
    assert_eq!((page.found.len(), rest.found.len(), rest.next), (2, count - 2, None));
}

/// The listing includes ended records.
pub fn every_record_is_on_some_page<T: RepositoryTarget>(target: &T) {
    let mut records = target.handle();
    let mut expected = Vec::new();
    for number in 0..20 {
        let mut record = record(&format!("all-{number}"), "all-a", "all-b");
        if number % 2 == 0 {
            record.state = Phase::RolledBack;
        }
        records.save(&record, None).expect("the id is unused");
        expected.push(record);
    }
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = records.page(after.as_ref(), 7).expect("a page");
        assert!(page.found.len() <= 7);
        seen.extend(page.found.into_iter().map(|stored| stored.record));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    for record in &expected {
        assert_eq!(seen.iter().filter(|one| *one == record).count(), 1);
    }
}

/// The largest record must fit into one value of every store.
pub fn the_largest_snapshot_fits_and_no_larger<T: RepositoryTarget>(target: &T) {
    let mut records = target.handle();
    let mut record = record("large", &"a".repeat(500), &"b".repeat(500));
    record.state = Phase::Serialize;
    record.snapshot = vec![7; SNAPSHOT_LEN_MAX];
    let version = records.save(&record, None).expect("as large as allowed");
    assert_eq!(records.get(&record.id).map(|stored| stored.record), Ok(record.clone()));
    record.snapshot.push(7);
    let len = record.snapshot.len();
    let refused = RepositoryError::Invalid(InvalidRecord::SnapshotTooLarge { len });
    assert_eq!(records.save(&record, Some(version)), Err(refused));
}

/// A record that cannot be decoded is refused when it is written.
pub fn what_no_machine_makes_is_not_saved<T: RepositoryTarget>(target: &T) {
    let mut records = target.handle();
    let mut record = record("made-up", "made-up-a", "made-up-b");
    record.to = record.from.clone();
    let refused = RepositoryError::Invalid(InvalidRecord::SameOwner);
    assert_eq!(records.save(&record, None), Err(refused));
    assert_eq!(records.get(&record.id), Err(RepositoryError::RecordNotFound));
}

/// Only a current version is deleted.
pub fn only_ended_records_are_removed<T: RepositoryTarget>(target: &T) {
    let mut records = target.handle();
    let mut record = record("forget", "forget-a", "forget-b");
    let version = records.save(&record, None).expect("the id is unused");
    let live = Stored { record: record.clone(), version };
    let state = Phase::Lock;
    assert_eq!(records.forget(&live), Err(RepositoryError::NotOver { state }));
    record.state = Phase::RolledBack;
    let over = records.save(&record, Some(version)).expect("the version is current");
    let stale = Stored { record: record.clone(), version };
    assert_eq!(records.forget(&stale), Err(RepositoryError::VersionConflict));
    let over = Stored { record, version: over };
    assert_eq!(records.forget(&over), Ok(()));
    assert_eq!(records.get(&over.record.id), Err(RepositoryError::RecordNotFound));
    assert_eq!(records.forget(&over), Ok(()), "deletion is idempotent");
}

/// A driver of a deleted record receives an error.
pub fn a_forgotten_record_does_not_come_back<T: RepositoryTarget>(target: &T) {
    let mut records = target.handle();
    let mut record = record("gone", "gone-a", "gone-b");
    record.state = Phase::Complete;
    let version = records.save(&record, None).expect("the id is unused");
    records.forget(&Stored { record: record.clone(), version }).expect("the record has ended");
    let late = records.save(&record, Some(version));
    assert_eq!(late, Err(RepositoryError::VersionConflict));
}

fn record(id: &str, from: &str, to: &str) -> Record {
    let (id, now) = (RecordId::new(id).expect("a valid name"), LogicalTime::from_raw(5));
    Machine::new(id, "the subject", from, to, now).expect("valid names").record()
}
