//! Compare-and-swap and recovery listing of the in-memory repository.

use gossip_contracts::identity::LogicalTime;

use super::*;

fn machine(id: &str, from: &str, to: &str) -> Machine {
    let id = RecordId::new(id).unwrap();
    Machine::new(id, "subject", from, to, LogicalTime::from_raw(1)).unwrap()
}

#[test]
fn of_two_concurrent_saves_one_gets_a_conflict() {
    let mut one = MemoryRepository::new();
    let mut other = one.clone();
    let mut first = machine("m", "a", "b");
    one.save(&first.record(), None).unwrap();
    let found = other.get(&first.record().id).unwrap();
    let mut second = Machine::from_record(found.record.clone()).unwrap();

    first.serialize(b"by the first").unwrap();
    second.rollback("by the second").unwrap();
    let newer = one.save(&first.record(), Some(found.version)).unwrap();
    let lost = other.save(&second.record(), Some(found.version));
    assert_eq!(lost, Err(RepositoryError::VersionConflict));
    let stored = Stored { record: first.record(), version: newer };
    assert_eq!(other.get(&first.record().id), Ok(stored));
}

#[test]
fn a_first_save_conflicts_with_a_stored_record() {
    let mut records = MemoryRepository::new();
    let record = machine("m", "a", "b").record();
    let version = records.save(&record, None).unwrap();
    assert_eq!(records.save(&record, None), Err(RepositoryError::VersionConflict));
    let other = machine("n", "a", "b").record();
    assert_eq!(records.save(&other, Some(version)), Err(RepositoryError::VersionConflict));
    assert_eq!(records.get(&other.id), Err(RepositoryError::RecordNotFound));
}

#[test]
fn in_progress_lists_moves_from_and_to_the_owner() {
    let mut records = MemoryRepository::new();
    let mut over = machine("over", "a", "b");
    over.rollback("enough").unwrap();
    for machine in [&machine("gives", "a", "b"), &machine("gets", "c", "a"), &over] {
        records.save(&machine.record(), None).unwrap();
    }
    records.save(&machine("foreign", "c", "b").record(), None).unwrap();
    let found = records.in_progress("a").unwrap();
    let ids: Vec<_> = found.iter().map(|stored| stored.record.id.as_str().to_owned()).collect();
    assert_eq!(ids, ["gets", "gives"]);
    assert_eq!(records.in_progress("nobody"), Ok(Vec::new()));
}

#[test]
fn an_invalid_record_is_not_stored() {
    let mut records = MemoryRepository::new();
    let mut record = machine("m", "a", "b").record();
    record.to = record.from.clone();
    let refused = records.save(&record, None);
    assert_eq!(refused, Err(RepositoryError::Invalid(InvalidRecord::SameOwner)));
    assert_eq!(records.get(&record.id), Err(RepositoryError::RecordNotFound));
}
